// SPDX-License-Identifier: Apache-2.0
/* Stands for a machine that gives the observer's first thread no time: that thread goes on once the
 * file that STARVED_UNTIL names is there. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int prctl(int option, ...) {
  unsigned long arguments[4];
  va_list list;
  va_start(list, option);
  for (int i = 0; i < 4; ++i) arguments[i] = va_arg(list, unsigned long);
  va_end(list);
  const char* until = getenv("STARVED_UNTIL");
  if (option == PR_SET_NAME && until != NULL &&
      strcmp((const char*)arguments[0], "nanwatch") == 0) {
    static const struct timespec kPause = {.tv_nsec = 1000000};
    while (access(until, F_OK) != 0) nanosleep(&kPause, NULL);
  }
  return (int)syscall(SYS_prctl, option, arguments[0], arguments[1], arguments[2], arguments[3]);
}
