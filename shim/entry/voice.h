// SPDX-License-Identifier: Apache-2.0
/* The shim's few words to the user: lines on stderr, or in the file that NANWATCH_LOG names. */
#ifndef NANWATCH_SHIM_ENTRY_VOICE_H_
#define NANWATCH_SHIM_ENTRY_VOICE_H_

#include <stdatomic.h>

struct voice {
  const char* log_path;  /* null or "": stderr */
  const char* copy_path; /* null or "": none. A file that gets the same lines, as long as somebody
                          * keeps it there: it is never made */
  _Atomic int lines;     /* said so far; children of fork count on */
  char last[256];        /* the last of them, cut */
};

/* As NanwatchEntry.say in observer_interface.h. */
void voice_say(struct voice* voice, const char* line);

/* `line` alone, in the copy alone. Does not count. */
void voice_answer(struct voice* voice, const char* line);

/* The same with a format; cut at 2 KiB. */
void voice_sayf(struct voice* voice, const char* format, ...) __attribute__((format(printf, 2, 3)));

#endif /* NANWATCH_SHIM_ENTRY_VOICE_H_ */
