// SPDX-License-Identifier: Apache-2.0
/* What became of a process that loads torch, for the `nanwatch run` around it: a file of one line,
 * <job>.<pid>.unwatched in the directory that NANWATCH_RUN_DIR names. Whoever makes the process's
 * segment removes it, so the line that is left says how far the process came:
 *
 *     import_failed --libtorch mapped--> ended_early
 *     ended_early --> (no_observer | not_started | no_ops) DETAIL
 *
 * Without a `nanwatch run` there is no file. */
#ifndef NANWATCH_SHIM_ENTRY_MARK_H_
#define NANWATCH_SHIM_ENTRY_MARK_H_

#include <stdatomic.h>

#include "shim/entry/loader.h"

struct process_mark {
  char directory[NANWATCH_PATH_MAX]; /* "": no marks */
  char job[64];
  _Atomic int pid;   /* of the process that has a mark; 0: none yet */
  _Atomic int final; /* 1: why the process is not watched is known */
};

/* Constructor only. Expects zeroed memory. */
void mark_read_environment(struct process_mark* mark);

/* The process saw its first sign of torch; later calls do nothing. Keeps errno. */
void mark_begin(struct process_mark* mark);

/* Replaces the line, unless it is final. `detail` may be null. */
void mark_set(struct process_mark* mark, const char* reason, const char* detail);
void mark_set_final(struct process_mark* mark, const char* reason, const char* detail);

/* The process is none of those that anybody wants to watch. */
void mark_remove(struct process_mark* mark);

#endif /* NANWATCH_SHIM_ENTRY_MARK_H_ */
