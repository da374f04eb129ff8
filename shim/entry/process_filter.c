// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/process_filter.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct mark {
  const char* bytes;
  size_t length;
};
#define MARK(literal) \
  { literal, sizeof(literal) - 1 }

bool command_line_is_filtered(const char* bytes, size_t length) {
  /* Exact enough that a user's `-c` program that only mentions one of these modules does not fit. */
  static const struct mark kMarks[] = {
      MARK("/_inductor/compile_worker/__main__.py"),
      MARK("-m\0torch._inductor.compile_worker"),
      MARK("\0--pickler=torch._inductor.compile_worker."),
      MARK("from multiprocessing.resource_tracker import main"),
  };
  for (size_t i = 0; i < sizeof kMarks / sizeof kMarks[0]; ++i) {
    if (memmem(bytes, length, kMarks[i].bytes, kMarks[i].length) != NULL) return true;
  }
  return false;
}

bool process_is_filtered(void) {
  char bytes[4096]; /* the mark is among the first arguments */
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t length = read(fd, bytes, sizeof bytes);
  close(fd);
  return length > 0 && command_line_is_filtered(bytes, (size_t)length);
}
