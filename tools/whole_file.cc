// SPDX-License-Identifier: Apache-2.0
#include "tools/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "daemon/base/unique_fd.h"
#include "tools/terminal.h"

namespace nanwatch {

bool WriteWholeFile(const std::string& path, std::string_view content) {
  const std::string unfinished = path + "." + std::to_string(getpid()) + ".tmp";
  const UniqueFd fd(
      open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return false;
  if (WriteAll(fd.get(), content) && rename(unfinished.c_str(), path.c_str()) == 0) return true;
  unlink(unfinished.c_str());
  return false;
}

}  // namespace nanwatch
