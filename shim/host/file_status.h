// SPDX-License-Identifier: Apache-2.0
// stat and fstat without glibc's symbols of that name: these carry the version GLIBC_2.33 when
// linked on a current system (they were inline before), and the observer must load on older ones.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace nanwatch {

// 0, or -1 with errno.
inline int FileStatus(int fd, struct stat* status) noexcept {
  return static_cast<int>(syscall(SYS_fstat, fd, status));
}
// Does not follow a symbolic link at the end of `path`.
inline int FileStatus(const char* path, struct stat* status) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW));
}

}  // namespace nanwatch
