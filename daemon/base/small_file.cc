// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "daemon/base/unique_fd.h"

namespace nanwatch {

Result<std::string> ReadSmallFile(const std::string& path, size_t bytes_max) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot open it");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Status(ErrorKind::kInvalid, "it is not a regular file");
  }
  std::string text(bytes_max + 1, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, "cannot read it");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace nanwatch
