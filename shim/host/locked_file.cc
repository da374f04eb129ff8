// SPDX-License-Identifier: Apache-2.0
#include "shim/host/locked_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace nanwatch {

bool Lock(int fd) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 0;
  lock.l_len = 1;
  return fcntl(fd, F_SETLK, &lock) == 0;
}

int MoveUp(int fd) noexcept {
  constexpr int kLowest = 200;
  const int higher = fcntl(fd, F_DUPFD_CLOEXEC, kLowest);
  if (higher < 0) return fd;
  close(fd);
  return higher;
}

bool MayBeThatLong(uint64_t bytes) noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur;
}

}  // namespace nanwatch
