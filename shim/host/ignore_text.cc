// SPDX-License-Identifier: Apache-2.0
#include "shim/host/ignore_text.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "proto/wire/naming.h"
#include "shim/host/file_status.h"

namespace nanwatch {
namespace {

// 0 or an errno. O_NONBLOCK: a FIFO under that name would hold the job up.
int ReadRules(const char* path, wire::IgnoreSection& section) noexcept {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return errno;
  struct stat status {};
  int error = 0;
  if (FileStatus(fd, &status) != 0) {
    error = errno;
  } else if (!S_ISREG(status.st_mode)) {
    error = EINVAL;
  }
  size_t done = 0;
  while (error == 0 && done < sizeof section.text) {
    const ssize_t got = read(fd, section.text + done, sizeof section.text - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  char more = 0;
  if (done == sizeof section.text && read(fd, &more, 1) == 1) {
    section.flags |= wire::IgnoreSection::kCut;
  }
  close(fd);
  section.bytes = static_cast<uint32_t>(done);
  return error;
}

void SetText(std::string_view text, wire::IgnoreSection& section) noexcept {
  const size_t kept = std::min(text.size(), sizeof section.text);
  std::memcpy(section.text, text.data(), kept);
  section.bytes = static_cast<uint32_t>(kept);
  if (kept < text.size()) section.flags |= wire::IgnoreSection::kCut;
}

// Half a rule says less than its writer did, and so excuses more.
void DropHalfARule(wire::IgnoreSection& section) noexcept {
  const std::string_view text{section.text, section.bytes};
  const size_t last = text.find_last_of("\n;");
  section.bytes = last == std::string_view::npos ? 0 : static_cast<uint32_t>(last + 1);
}

}  // namespace

bool HasIgnore() noexcept {
  const char* value = secure_getenv(wire::kEnvIgnore);
  return value != nullptr && *value != '\0';
}

void FillIgnore(wire::IgnoreSection& section) noexcept {
  if (!HasIgnore()) return;
  const char* value = secure_getenv(wire::kEnvIgnore);
  if (*value != '@') {
    SetText(value, section);
  } else if (const int error = ReadRules(value + 1, section); error != 0) {
    SetText(value + 1, section);
    section.flags = wire::IgnoreSection::kUnreadable;
    section.error = error;
    return;
  }
  if ((section.flags & wire::IgnoreSection::kCut) != 0) DropHalfARule(section);
}

}  // namespace nanwatch
