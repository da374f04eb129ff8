// SPDX-License-Identifier: Apache-2.0
// LD_PRELOAD as the dynamic loader reads it: library names separated by colons or spaces, tried in
// order. Pure functions of text; the one question asked of the file system is passed in.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace nanwatch {

// The names in an LD_PRELOAD, empty ones left out.
[[nodiscard]] std::vector<std::string> PreloadEntries(std::string_view preload);

// False for a path that LD_PRELOAD cannot carry, because a colon or space in it would cut it in
// two.
[[nodiscard]] bool CanBePreloaded(std::string_view library);

// Resolves the links of a file name; "" if there is no such file.
using ResolvePath = std::function<std::string(const std::string&)>;

struct PreloadPlan {
  std::string value;       // what LD_PRELOAD should be
  std::string other_copy;  // another installation's libnanwatch.so that is in it already, else ""
  bool already_there = false;
};

// `current` with `library` added, unless it is there already or another copy of it is.
//
// Ours goes last: sanitizer runtimes and allocators insist on being first, and ours needs no place
// of its own: it overrides nothing that others rely on, and passes on what it sees by a tail jump.
// A copy from another installation is left to do the work, because a second copy in a process stays
// quiet.
[[nodiscard]] PreloadPlan ComposePreload(std::string_view current, const std::string& library,
                                         const ResolvePath& resolve);

// `current` without any libnanwatch.so: what our own processes are started with.
[[nodiscard]] std::string WithoutNanwatch(std::string_view current);

}  // namespace nanwatch
