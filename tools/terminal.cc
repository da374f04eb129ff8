// SPDX-License-Identifier: Apache-2.0
#include "tools/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tools/exit_codes.h"

namespace nanwatch {

bool WantsColor(int fd) {
  const char* refused = getenv("NO_COLOR");
  if (refused != nullptr && *refused != '\0') return false;
  const char* kind = getenv("TERM");
  if (kind == nullptr || std::string_view(kind) == "dumb") return false;
  return isatty(fd) == 1;
}

bool WantsUnicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = getenv(name);
    if (value == nullptr || *value == '\0') continue;
    return strcasestr(value, "utf-8") != nullptr || strcasestr(value, "utf8") != nullptr;
  }
  return false;
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::string WhyNotWritten(int error) {
  const std::string why = strerror(error);
  if (error == ENOSPC || error == EDQUOT)
    return why + ": make room where it goes, or send it elsewhere";
  if (error == EFBIG) return why + ": raise the limit ('ulimit -f'), or send it elsewhere";
  return why + ": send it to a file or a pipe that takes it";
}

int NotWritten(int exit_code) {
  if (errno == EPIPE) return exit_code;
  Say("the output could not be written: " + WhyNotWritten(errno));
  return kExitFailed;
}

int PrintAndExit(std::string_view text, int exit_code) {
  return WriteAll(STDOUT_FILENO, text) ? exit_code : NotWritten(exit_code);
}

int ReportColumns(int fd) {
  winsize size{};
  if (isatty(fd) != 1 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
  return std::clamp<int>(size.ws_col, 60, 120);
}

void Say(std::string_view line) {
  std::string text = "nanwatch: ";
  text += line;
  text += '\n';
  WriteAll(STDERR_FILENO, text);
}

}  // namespace nanwatch
