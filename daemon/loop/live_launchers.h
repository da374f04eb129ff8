// SPDX-License-Identifier: Apache-2.0
// The `nanwatch run`s that are there: the command of one may take minutes until it imports torch,
// and has no segment until then.
#pragma once

#include <string>

namespace nanwatch {

// Whether one lives that has its mark in this directory.
[[nodiscard]] bool AnyLauncherLives(const std::string& segment_dir);

}  // namespace nanwatch
