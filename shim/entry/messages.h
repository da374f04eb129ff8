// SPDX-License-Identifier: Apache-2.0
/* Messages to the user: lines on stderr, or in the file that NANWATCH_LOG names. */
#ifndef NANWATCH_SHIM_ENTRY_MESSAGES_H_
#define NANWATCH_SHIM_ENTRY_MESSAGES_H_

#include <stdatomic.h>

struct messages {
  const char* log_path;  /* null or "": stderr */
  const char* copy_path; /* null or "": none. A file that gets the same lines while it exists; it
                          * is never created */
  _Atomic int lines;     /* written so far; a forked child continues the count */
  char last[256];        /* the last line, possibly cut */
};

/* As NanwatchEntry.say in observer_interface.h. */
void messages_write(struct messages* messages, const char* line);

/* Writes `line` without a prefix, to the copy only. Does not count. */
void messages_answer(struct messages* messages, const char* line);

/* messages_write with a format; cut at 2 KiB. */
void messages_writef(struct messages* messages, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

#endif /* NANWATCH_SHIM_ENTRY_MESSAGES_H_ */
