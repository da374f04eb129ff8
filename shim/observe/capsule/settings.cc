// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/capsule/settings.h"

#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace nanwatch {
namespace {

const char* Given(const char* variable) {
  const char* given = getenv(variable);
  return given != nullptr ? given : "";
}

// The first word of this process's command, as it was typed.
std::string FirstWord() {
  char text[PATH_MAX] = "";
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const ssize_t bytes = read(fd, text, sizeof text - 1);
  close(fd);
  return bytes > 0 ? std::string(text) : "";
}

// Python's own name for itself keeps the environment that it belongs to; /proc/self/exe would name
// the one that the environment was made from.
std::string InterpreterPath() {
  const std::string word = FirstWord();
  if (word.empty()) return "";
  if (word.front() == '/') return word;
  char here[PATH_MAX];
  if (word.find('/') != std::string::npos) {
    return getcwd(here, sizeof here) != nullptr ? std::string(here) + '/' + word : "";
  }
  std::string_view path = Given("PATH");
  while (!path.empty()) {
    const size_t end = path.find(':');
    std::string found = std::string(path.substr(0, end)) + '/' + word;
    if (found.front() == '/' && access(found.c_str(), X_OK) == 0) return found;
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
  }
  return "";
}

uint64_t GivenLimit(const NanwatchEntry& entry) {
  const char* given = Given(wire::kEnvCapsuleLimit);
  if (*given == '\0') return wire::kCapsuleBytesMax;
  char* end = nullptr;
  const unsigned long long bytes = std::strtoull(given, &end, 10);
  if (end != given && *end == '\0' && *given != '-') return bytes;
  char line[128];
  std::snprintf(line, sizeof line, "%s=%.40s is no number of bytes: taking %llu",
                wire::kEnvCapsuleLimit, given, wire::kCapsuleBytesMax);
  entry.say(line);
  return wire::kCapsuleBytesMax;
}

}  // namespace

CapsuleSettings GivenCapsuleSettings(const NanwatchEntry& entry) {
  CapsuleSettings settings;
  const char* kind = Given(wire::kEnvCapsule);
  if (*kind == '\0' || std::strcmp(kind, "off") == 0) return settings;
  char line[160];
  if (std::strcmp(kind, "op") != 0) {
    std::snprintf(line, sizeof line, "%s=%.40s is neither off nor op: no capsules are written",
                  wire::kEnvCapsule, kind);
    entry.say(line);
    return settings;
  }
  settings.directory = Given(wire::kEnvCapsuleDir);
  if (settings.directory.empty()) {
    std::snprintf(line, sizeof line, "%s names no directory: no capsules are written",
                  wire::kEnvCapsuleDir);
    entry.say(line);
    return settings;
  }
  settings.bytes_max = GivenLimit(entry);
  settings.python = InterpreterPath();
  settings.say = entry.say;
  settings.on = true;
  return settings;
}

}  // namespace nanwatch
