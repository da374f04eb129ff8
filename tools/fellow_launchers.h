// SPDX-License-Identifier: Apache-2.0
// The `nanwatch run`s of one job on this host: with `srun -n 4 nanwatch run ...` there are four.
// The last of them to end reports the job, and the daemon stays as long as one of any job lives.
#pragma once

#include <string>

#include "daemon/base/unique_fd.h"

namespace nanwatch {

// Held by one launcher from its start to its report: a locked file in the segment directory, which
// the kernel unlocks however the launcher ends. OthersLive and Leave are called under the lock by
// which launchers take turns at their end, so that one of them finds itself last, and only one.
class LauncherMark {
 public:
  LauncherMark() = default;  // that of a launcher whose command is not watched
  // Where the file cannot be made this launcher does not count for the others.
  [[nodiscard]] static LauncherMark Join(const std::string& segment_dir, const std::string& job);

  LauncherMark(LauncherMark&&) noexcept = default;
  LauncherMark& operator=(LauncherMark&& other) noexcept;
  LauncherMark(const LauncherMark&) = delete;
  LauncherMark& operator=(const LauncherMark&) = delete;
  ~LauncherMark() { Leave(); }

  // How many other launchers of the job are there. Removes what killed ones have left.
  [[nodiscard]] int OthersLive() const;
  void Leave();

 private:
  std::string segment_dir_;
  std::string job_;
  std::string path_;
  UniqueFd file_;
};

}  // namespace nanwatch
