// SPDX-License-Identifier: Apache-2.0
/* How the library is told to watch a process that ran already when it came: the one function that
 * somebody outside calls, by a debugger or by a script that the process's own Python runs
 * (`nanwatch attach`, tools/late_load.h).
 *
 * A copy that came by dlopen waits for this call; only one that was there from the process's start
 * looks for libtorch by itself. Otherwise the observer would be up, at the level of the
 * environment, before anybody could say at which. */
#ifndef NANWATCH_SHIM_ENTRY_ATTACH_H_
#define NANWATCH_SHIM_ENTRY_ATTACH_H_

/* What nanwatch_entry_attach answers. Numbers are part of the interface. */
enum nanwatch_attach_answer {
  NANWATCH_ATTACH_BEGUN = 0,        /* the rest follows on a thread of its own, and is said */
  NANWATCH_ATTACH_SWITCHED_OFF = 1, /* NANWATCH=0 */
  NANWATCH_ATTACH_PRIVILEGED = 2,   /* the process has raised privileges: never */
  NANWATCH_ATTACH_ALREADY = 3,      /* it is watched, by this copy or another, or about to be */
  NANWATCH_ATTACH_NO_TORCH = 4,     /* libtorch is not mapped */
  NANWATCH_ATTACH_WRONG_USE = 5,    /* a text is missing or too long */
  NANWATCH_ATTACH_FAILED = 6        /* no memory, or no thread */
};

/* Starts the observer for the libtorch that is mapped. `level`: to begin at ("idle"). `directory`:
 * of the segment. `answers`: a file that lines are appended to while it is there, each as on
 * stderr, and "off" when the process is not going to be watched; "" none. That it is watched shows
 * by its segment. The texts are copied.
 *
 * Exported by libnanwatch.so. Any thread that is not inside the loader or malloc; takes the
 * loader's lock, makes one thread, waits for nothing, and does not care whether the caller has the
 * GIL. Only the first call of a process does anything; the library stays for good. */
int nanwatch_entry_attach(const char* level, const char* directory, const char* answers);

#endif /* NANWATCH_SHIM_ENTRY_ATTACH_H_ */
