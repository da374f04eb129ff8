// SPDX-License-Identifier: Apache-2.0
// What the configuration files say together, and how it comes to hold: flags win over environment
// variables, and these over files. Of several files the nearer one wins, key by key:
//
//   $NANWATCH_CONFIG                      alone, when it is set
//   nanwatch.toml                         in the working directory or the nearest one above it
//   ~/.config/nanwatch/nanwatch.toml      ($XDG_CONFIG_HOME)
//   /etc/nanwatch/nanwatch.toml
//
// The section [forward] is taken whole, from the nearest file that has forward.to, and [fleet] from
// that with fleet.url: a token of one file never goes to an address of another.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/directories.h"
#include "daemon/base/status.h"
#include "daemon/config/config_file.h"

namespace nanwatch {

inline constexpr char kSystemConfigFile[] = "/etc/nanwatch/nanwatch.toml";

struct Configuration {
  std::vector<std::string> files;       // those that were read, the nearest first
  std::vector<ConfiguredValue> values;  // at most one for each setting
  std::vector<std::string> notes;  // files and values that were left out, and why; a sentence each

  // nullptr: no file sets it.
  [[nodiscard]] const ConfiguredValue* Find(std::string_view variable) const;
};

// A file in the working directory or above it may be anybody's: one that belongs to another user
// (but root), or that everybody may write to, is left out with a note.
[[nodiscard]] Result<Configuration> ReadConfiguration(
    const Environment& environment, const std::string& working_directory,
    const std::string& system_file = kSystemConfigFile);

// The same for this process.
[[nodiscard]] Result<Configuration> ReadConfiguration();

// Sets the variables of this process that are not set and that a file sets: those of no section,
// and those of `section`, a verb's; [fleet] is that of all verbs that may ask one. Not while other
// threads run (setenv(3)).
void ApplyConfiguration(const Configuration& configuration, std::string_view section);

// How the user knows the setting behind `variable`: "run.level (/home/u/nanwatch.toml:3)" when its
// value comes from a file, otherwise the variable's name.
[[nodiscard]] std::string NameOfSetting(const Configuration& configuration, const char* variable);

}  // namespace nanwatch
