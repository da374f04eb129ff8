// SPDX-License-Identifier: Apache-2.0
// A file of /proc as text. A stream's buffer throws where reading fails, as it does when the
// process ends between the opening and the reading.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "daemon/base/unique_fd.h"

namespace nanwatch {

// "" where it cannot be opened, what came before the failure where it cannot be read. Any thread.
[[nodiscard]] inline std::string TextOfProcFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!fd.valid()) return text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t bytes = read(fd.get(), piece.data(), piece.size());
    if (bytes > 0) text.append(piece.data(), static_cast<size_t>(bytes));
    if (bytes == 0 || (bytes < 0 && errno != EINTR)) return text;
  }
}

}  // namespace nanwatch
