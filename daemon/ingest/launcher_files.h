// SPDX-License-Identifier: Apache-2.0
// The files that each `nanwatch run` holds in the segment directory while it lives
// (wire::kLauncherSuffix): the command of one may take minutes until it imports torch, and has no
// segment until then.
#pragma once

#include <string>
#include <vector>

namespace nanwatch {

struct LauncherFile {
  std::string name;
  bool is_held = false;  // else its launcher was killed
};

// In no order. Asks for shared locks, which disturb nobody else who asks.
[[nodiscard]] std::vector<LauncherFile> ListLauncherFiles(const std::string& segment_dir);

}  // namespace nanwatch
