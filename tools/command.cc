// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/exit_codes.h"

namespace nanwatch {
namespace {

enum class Candidate { kMissing, kDirectory, kNotExecutable, kExecutable };

Candidate Look(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    return errno == EACCES ? Candidate::kNotExecutable : Candidate::kMissing;
  }
  if (S_ISDIR(status.st_mode)) return Candidate::kDirectory;
  return access(path.c_str(), X_OK) == 0 ? Candidate::kExecutable : Candidate::kNotExecutable;
}

CommandLookup Unusable(int exit_code, std::string message) {
  return {.exit_code = exit_code, .path = "", .message = std::move(message)};
}

std::string WhatToDoAboutMode(const std::string& name) {
  const bool script = name.ends_with(".py");
  return script
             ? ": run it with its interpreter, 'nanwatch run -- python " + name + "'"
             : ": make it executable with 'chmod +x " + name + "', or name its interpreter first";
}

CommandLookup FindByPath(const std::string& name) {
  switch (Look(name)) {
    case Candidate::kExecutable:
      return {.exit_code = 0, .path = name, .message = ""};
    case Candidate::kDirectory:
      return Unusable(kExitNotExecutable, "'" + name + "' is a directory, not a command");
    case Candidate::kNotExecutable:
      return Unusable(kExitNotExecutable,
                      "'" + name + "' cannot be executed" + WhatToDoAboutMode(name));
    case Candidate::kMissing:
      break;
  }
  return Unusable(kExitNotFound, "there is no file '" + name + "': check the path");
}

}  // namespace

CommandLookup FindCommand(const std::string& name, std::string_view search_path) {
  if (name.empty()) return Unusable(kExitNotFound, "the command is an empty string");
  if (name.find('/') != std::string::npos) return FindByPath(name);
  std::string not_executable;
  while (true) {
    const size_t end = search_path.find(':');
    const std::string_view directory = search_path.substr(0, end);
    const std::string path =
        (directory.empty() ? std::string(".") : std::string(directory)) + "/" + name;
    const Candidate candidate = Look(path);
    if (candidate == Candidate::kExecutable) return {.exit_code = 0, .path = path, .message = ""};
    if (candidate == Candidate::kNotExecutable) not_executable = path;
    if (end == std::string_view::npos) break;
    search_path.remove_prefix(end + 1);
  }
  if (!not_executable.empty()) {
    return Unusable(kExitNotExecutable, "'" + not_executable + "' cannot be executed" +
                                            WhatToDoAboutMode(not_executable));
  }
  if (Look(name) != Candidate::kMissing) {
    return Unusable(kExitNotFound, "command '" + name +
                                       "' is not on PATH, but a file of that name is "
                                       "here: write './" +
                                       name + "', or name its interpreter first");
  }
  return Unusable(kExitNotFound, "command '" + name +
                                     "' not found: check its spelling, PATH, or the virtual "
                                     "environment that should be active");
}

CommandLookup ExplainExecFailure(const std::string& name, int error) {
  if (error == ENOENT) {
    // The file was there a moment ago: what is missing is the interpreter that it names.
    return Unusable(kExitNotExecutable, "'" + name +
                                            "' could not be started: the interpreter on its "
                                            "first line, or its loader, does not exist");
  }
  return Unusable(kExitNotExecutable, "'" + name + "' could not be started: " + strerror(error));
}

}  // namespace nanwatch
