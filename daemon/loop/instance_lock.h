// SPDX-License-Identifier: Apache-2.0
// One daemon for a segment directory and place, and one that writes a database: POSIX record locks
// on files whose content says who holds them. A lock goes with its process, whatever becomes of it;
// the file stays.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/base/unique_fd.h"

namespace nanwatch {

class InstanceLock {
 public:
  // kBusy, with who runs and since when, when another process holds it. `purpose` completes the
  // sentence "another nanwatchd ...". Not to be taken twice in one process: record locks do not see
  // that, and closing one of the two gives both back.
  static Result<InstanceLock> Take(const std::string& path, const std::string& purpose,
                                   const Clock& clock);

  // kBusy as Take would say it, else ok. Takes nothing. Not for a lock of this process's own.
  static Status Probe(const std::string& path, const std::string& purpose);

  // False once the file that is locked is no longer the one in the directory: somebody cleaned up,
  // and another daemon could start.
  [[nodiscard]] bool StillInPlace() const;

 private:
  InstanceLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

// The lock of the daemon that reads `segment_dir`.
Result<InstanceLock> TakeDaemonLock(const std::string& segment_dir, const Clock& clock);
// The lock of the daemon that writes the database in `state_dir`.
Result<InstanceLock> TakeStateLock(const std::string& state_dir, const Clock& clock);

}  // namespace nanwatch
