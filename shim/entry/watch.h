// SPDX-License-Identifier: Apache-2.0
/* The watch for libtorch: one detached thread, started at the first sign of torch and never in a
 * process without one.
 *
 *     idle --sign--> watching --libtorch mapped--> found() --> over
 *      ^                |
 *      +--- patience_ms without a sign
 *
 * A sign is a dlopen of something whose name says torch; it starts the thread or, where it runs,
 * gives it patience_ms more. In a forked child the thread does not exist and `watched` in the fork
 * page reads 0, so its next sign starts one of its own; `over` is inherited, because so is the
 * observer. */
#ifndef NANWATCH_SHIM_ENTRY_WATCH_H_
#define NANWATCH_SHIM_ENTRY_WATCH_H_

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/entry/fork_page.h"
#include "shim/entry/loader.h"

struct watch {
  /* Called on the watch thread when libtorch_cpu.so is mapped and its constructors have ended. */
  void (*found)(const char* libtorch_path);
  int patience_ms;                 /* how long after the last sign it goes on looking */
  _Atomic(struct fork_page*) page; /* from the first sign on, never changed */
  _Atomic unsigned signs;
  _Atomic bool over;
};

/* A sign of torch was seen. Makes the thread or tells it; keeps the caller's signal mask. Where no
 * thread can be made (limits, a libc without threads), nothing happens and the next sign tries
 * again. Any thread. */
void watch_sign(struct watch* watch, struct fork_page* page);

#define NANWATCH_LIBTORCH "libtorch_cpu.so"

/* True once the constructors of the mapped libtorch at `path` have ended: an object is listed
 * before they run, and opening it again waits for the lock that the loader holds meanwhile. False
 * when it was unloaded again because its load failed. */
bool libtorch_is_constructed(const char* path);

/* Whether a file name that somebody passes to dlopen is a sign: "torch" in its last two components.
 * Not in the whole path: an environment under ~/torch/ would start the thread in every Python of
 * its, torch or not. */
bool name_is_sign(const char* name);

#endif /* NANWATCH_SHIM_ENTRY_WATCH_H_ */
