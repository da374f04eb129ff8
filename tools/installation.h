// SPDX-License-Identifier: Apache-2.0
// Where the parts of this installation are. Everything is found from the tool's own path, so a
// prefix can be moved or copied as a whole, and the build tree works like an installation.
#pragma once

#include <string>
#include <vector>

namespace nanwatch {

inline constexpr char kLibraryName[] = "libnanwatch.so";

struct Installation {
  std::string tool;          // PREFIX/bin/nanwatch, links resolved
  std::string daemon;        // PREFIX/bin/nanwatchd
  std::string library;       // PREFIX/lib/libnanwatch.so
  std::string observer_dir;  // PREFIX/lib/nanwatch
};

// The installation that the running executable belongs to. Says nothing about whether the parts
// exist.
[[nodiscard]] Installation LocateInstallation();

// `path` with links resolved, "" when there is no such file.
[[nodiscard]] std::string ResolveLinks(const std::string& path);

// File names in the observer directory, the oldest torch first.
[[nodiscard]] std::vector<std::string> ObserverFiles(const Installation& installation);

[[nodiscard]] std::string PrefixOf(const Installation& installation);
// The script that compiles an observer. It is in the prefix.
[[nodiscard]] std::string BuildObserverScript(const Installation& installation);

// The command that builds the observer for this Python's torch and installs it here.
[[nodiscard]] std::string BuildObserverCommand(const Installation& installation,
                                               const std::string& python);

}  // namespace nanwatch
