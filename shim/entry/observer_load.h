// SPDX-License-Identifier: Apache-2.0
/* From "libtorch is there" to "the observer runs": which torch, which observer, load, start. */
#ifndef NANWATCH_SHIM_ENTRY_OBSERVER_LOAD_H_
#define NANWATCH_SHIM_ENTRY_OBSERVER_LOAD_H_

#include <stdbool.h>

#include "shim/entry/fork_page.h"
#include "shim/entry/mark.h"
#include "shim/entry/observer_interface.h"
#include "shim/entry/voice.h"

/* Finds the version of `libtorch_path` and starts the observer for it on the calling thread, for as
 * long as the observer wants. What stands in the way is said in one line, and the job goes on; the
 * answer is then false.
 * `entry` comes with everything filled in but torch_version and libtorch_path; it must live as long
 * as the process. Once a process image. */
bool observer_load(struct NanwatchEntry* entry, const char* libtorch_path, struct fork_page* page,
                   struct voice* voice, struct process_mark* mark);

#endif /* NANWATCH_SHIM_ENTRY_OBSERVER_LOAD_H_ */
