// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include "daemon/base/unique_fd.h"

namespace nanwatch {
namespace {

// At most so many bytes. 0 or an errno; `text` has what came before.
int ReadUpTo(int fd, size_t bytes_max, std::string& text) {
  std::array<char, 4096> piece{};
  while (text.size() < bytes_max) {
    const size_t wanted = std::min(piece.size(), bytes_max - text.size());
    const ssize_t got = read(fd, piece.data(), wanted);
    if (got == 0) break;
    if (got > 0) text.append(piece.data(), static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

Result<std::string> ReadSmallFile(const std::string& path, size_t bytes_max) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot open it");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Status(ErrorKind::kInvalid, "it is not a regular file");
  }
  std::string text;
  if (const int error = ReadUpTo(fd.get(), bytes_max + 1, text); error != 0)
    return Status::FromErrno(error, "cannot read it");
  return text;
}

std::string TextOfProcFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (fd.valid()) (void)ReadUpTo(fd.get(), SIZE_MAX, text);
  return text;
}

}  // namespace nanwatch
