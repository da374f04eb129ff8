// SPDX-License-Identifier: Apache-2.0
/* The loader watch waits for libtorch: one detached thread, started at the first sign of torch,
 * never in a process without one.
 *
 *     idle --sign--> watching --libtorch mapped--> found() --> over
 *      ^                |
 *      +--- patience_ms without a sign
 *
 * A sign is a dlopen of a name that contains torch. It starts the thread or, if it runs, gives it
 * patience_ms more. A forked child has no such thread, and `watched` in its fork page reads 0, so
 * its next sign starts another thread. The child inherits `over`, as it inherits the observer. */
#ifndef NANWATCH_SHIM_ENTRY_LOADER_WATCH_H_
#define NANWATCH_SHIM_ENTRY_LOADER_WATCH_H_

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/entry/fork_page.h"
#include "shim/entry/loader.h"

struct loader_watch {
  /* Called on the watch thread when libtorch_cpu.so is mapped and its constructors have run. */
  void (*found)(const char* libtorch_path);
  int patience_ms;                 /* how long it keeps polling after the last sign */
  _Atomic(struct fork_page*) page; /* from the first sign on, never changed */
  _Atomic unsigned signs;
  _Atomic bool over;
};

/* Reports a sign of torch: starts the thread, or extends its patience. Keeps the caller's signal
 * mask. If no thread can be started (limits, a libc without threads), nothing happens and the next
 * sign tries again. Any thread. */
void loader_watch_sign(struct loader_watch* watch, struct fork_page* page);

#define NANWATCH_LIBTORCH "libtorch_cpu.so"

/* True once the constructors of the mapped libtorch at `path` have run. The loader lists an object
 * before they run; opening it again waits for the lock that the loader holds meanwhile. False if
 * the loader unloaded it again because its load failed. */
bool libtorch_is_constructed(const char* path);

/* Whether a name passed to dlopen is a sign: "torch" in its last two components. Not in the whole
 * path: an environment under ~/torch/ would start the thread in all its Pythons, torch or not. */
bool name_is_sign(const char* name);

#endif /* NANWATCH_SHIM_ENTRY_LOADER_WATCH_H_ */
