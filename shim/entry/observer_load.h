// SPDX-License-Identifier: Apache-2.0
/* From "libtorch is there" to "the observer runs": which torch, which observer, load, start. */
#ifndef NANWATCH_SHIM_ENTRY_OBSERVER_LOAD_H_
#define NANWATCH_SHIM_ENTRY_OBSERVER_LOAD_H_

#include <stdbool.h>

#include "shim/entry/fork_page.h"
#include "shim/entry/mark.h"
#include "shim/entry/messages.h"
#include "shim/entry/observer_interface.h"

/* Finds the version of `libtorch_path` and starts the observer for it on the calling thread, which
 * the observer may keep. On failure it writes one line with the reason and returns false; the job
 * runs on. `entry` has everything filled in except torch_version and libtorch_path. It must live as
 * long as the process. Call once per process image. */
bool observer_load(struct NanwatchEntry* entry, const char* libtorch_path, struct fork_page* page,
                   struct messages* messages, struct process_mark* mark);

#endif /* NANWATCH_SHIM_ENTRY_OBSERVER_LOAD_H_ */
