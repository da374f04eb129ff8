// One daemon per segment directory: a POSIX record lock on daemon.lock, whose content says who
// holds it. The lock goes with the process, whatever becomes of it; the file stays.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/base/unique_fd.h"

namespace nanwatch {

class InstanceLock {
 public:
  // kBusy, with who runs and since when, when another process holds it. Not to be taken twice in
  // one process: record locks do not see that.
  static Result<InstanceLock> Take(const std::string& directory, const Clock& clock);

  // False once the file that is locked is no longer the one in the directory: somebody cleaned up,
  // and another daemon could start.
  [[nodiscard]] bool StillInPlace() const;

 private:
  InstanceLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace nanwatch
