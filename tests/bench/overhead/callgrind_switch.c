// SPDX-License-Identifier: Apache-2.0
/* Lets a Python program under valgrind say which stretch callgrind is to count. Outside valgrind the
 * requests do nothing. */
#include <valgrind/callgrind.h>

__attribute__((visibility("default"))) void callgrind_begin(void) {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

/* Writes what was counted since callgrind_begin into a file of its own, marked with `label`. */
__attribute__((visibility("default"))) void callgrind_end(const char* label) {
  CALLGRIND_DUMP_STATS_AT(label);
  CALLGRIND_STOP_INSTRUMENTATION;
}

__attribute__((visibility("default"))) int under_valgrind(void) { return RUNNING_ON_VALGRIND; }
