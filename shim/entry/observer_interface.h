// SPDX-License-Identifier: Apache-2.0
/* What libnanwatch.so (the entry, C) and an observer (C++, one per torch minor version) know of
 * each other. Included by both.
 *
 * The entry finds libtorch, waits until its constructors have ended, picks the observer for its
 * version, loads it with RTLD_NOW|RTLD_LOCAL|RTLD_NODELETE and calls nanwatch_observer_start() once
 * in the life of a process image: a child made by fork() inherits the loaded observer and is not
 * told again. Everything that the struct points to, and the struct itself, lives until the process
 * ends. Fields are only ever appended; a reader looks at struct_bytes before it uses a later
 * one. */
#ifndef NANWATCH_SHIM_ENTRY_OBSERVER_INTERFACE_H_
#define NANWATCH_SHIM_ENTRY_OBSERVER_INTERFACE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when the meaning of a field changes; an observer of another number steps down with one
 * line. */
enum { NANWATCH_INTERFACE_VERSION = 1 };

struct NanwatchEntry {
  uint32_t struct_bytes;      /* sizeof of the entry's own struct */
  uint32_t interface_version; /* NANWATCH_INTERFACE_VERSION of the entry */

  /* Set to 1 by the observer when it is on, to 0 when it steps down. Lies in a private page that
   * the kernel zeroes in a child of fork or clone, so that a child's first look at it says "not me"
   * without any handler having run. */
  volatile uint32_t* active;

  /* 1: the kernel zeroes the page (Linux 4.14 and later). 0: an older kernel; a pthread_atfork
   * handler zeroes it, which a raw clone() does not run, so the observer also compares getpid()
   * with the pid it started in wherever it is about to write. */
  uint32_t active_is_wiped_by_kernel;
  uint32_t reserved;

  const char* torch_version; /* in full, "2.11.0+cu130"; "2.6" where only a soname told it */
  const char* libtorch_path; /* of libtorch_cpu.so, as the loader names it */
  const char* library_path;  /* of libnanwatch.so, absolute */

  /* Writes "nanwatch: <line>\n" with one write(2) to stderr or to the file named by NANWATCH_LOG.
   * `line` has no newline. At most eight lines a process are written, later ones are dropped. Any
   * thread; never blocks, never raises SIGPIPE, keeps errno. */
  void (*say)(const char* line);

  /* Of a process that ran already when the library came into it (`nanwatch attach`); null where it
   * was there from the start. The level to begin at, and the folder for the process's segment, in
   * place of NANWATCH_LEVEL and NANWATCH_DIR: whoever came in looks there. */
  const char* late_level;
  const char* late_directory;
};

/* Exported by the observer under the name below. Called on the watch thread: detached, all signals
 * blocked, a stack of 1 MiB. The observer may keep the thread for as long as it wants; returning
 * ends it. 0: it is on, or will be; otherwise it stepped down and has said why. Nothing may escape
 * from it. */
typedef int (*nanwatch_observer_start_fn)(const struct NanwatchEntry* entry);
#define NANWATCH_OBSERVER_START "nanwatch_observer_start"

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NANWATCH_SHIM_ENTRY_OBSERVER_INTERFACE_H_ */
