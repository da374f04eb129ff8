// SPDX-License-Identifier: Apache-2.0
#include "shim/host/shared_mapping.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "proto/wire/hash.h"

namespace nanwatch {
namespace {

// "7f30c8000000-7f30c8021000 rw-s 00000000 00:1a 4711   /dev/shm/torch_12_34 (deleted)"
// True if the line is about `address`; `file` is 0 where its memory is this process's own.
bool IsAbout(const char* line, uintptr_t address, uint64_t* file) noexcept {
  unsigned long begin = 0;
  unsigned long end = 0;
  unsigned long inode = 0;
  unsigned major = 0;
  unsigned minor = 0;
  char flags[5] = "";
  if (std::sscanf(line, "%lx-%lx %4s %*x %x:%x %lu", &begin, &end, flags, &major, &minor, &inode) !=
          6 ||
      address < begin || address >= end) {
    return false;
  }
  *file =
      flags[3] == 's' && inode != 0
          ? wire::Mixed(wire::Mixed(uint64_t{major} << 32 | uint64_t{minor}) ^ uint64_t{inode}) | 1
          : 0;
  return true;
}

}  // namespace

uint64_t SharedFileAt(const void* address) noexcept {
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[8192];
  size_t kept = 0;  // the beginning of a line whose end is not read yet
  uint64_t file = 0;
  bool found = false;
  for (ssize_t got = 0; !found && (got = read(fd, text + kept, sizeof text - 1 - kept)) > 0;) {
    size_t size = kept + static_cast<size_t>(got);
    text[size] = '\0';
    const char* line = text;
    for (char* end = nullptr; !found && (end = std::strchr(const_cast<char*>(line), '\n'));
         line = end + 1) {
      *end = '\0';
      found = IsAbout(line, reinterpret_cast<uintptr_t>(address), &file);
    }
    kept = static_cast<size_t>(text + size - line);
    if (kept == sizeof text - 1) kept = 0;  // longer than any path: skipped
    std::memmove(text, line, kept);
  }
  close(fd);
  return file;
}

}  // namespace nanwatch
