// SPDX-License-Identifier: Apache-2.0
#include "shim/host/thread_work.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace nanwatch {

int NumberOfThisThread() noexcept { return static_cast<int>(syscall(SYS_gettid)); }

bool CanGoOn(int thread) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[256];
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return false;
  text[length] = '\0';
  // proc(5): "TID (name) STATE ...", and the name may have brackets of its own.
  const char* name_end = std::strrchr(text, ')');
  return name_end != nullptr && (name_end[2] == 'R' || name_end[2] == 'D');
}

}  // namespace nanwatch
