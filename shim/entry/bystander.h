// SPDX-License-Identifier: Apache-2.0
/* Processes that load torch and never train: torch.compile's compile workers, multiprocessing's
 * resource tracker. The fork server is not among them: its children share its command line and,
 * when it preloads torch, its libtorch, and some of them train. It costs nothing to be loaded
 * there: an observer makes no segment before there is something to say. */
#ifndef NANWATCH_SHIM_ENTRY_BYSTANDER_H_
#define NANWATCH_SHIM_ENTRY_BYSTANDER_H_

#include <stdbool.h>
#include <stddef.h>

/* Whether this process is one of them, by /proc/self/cmdline. Watch thread. */
bool process_is_bystander(void);

/* The same for the bytes of a command line (arguments ended by zero bytes). */
bool command_line_is_bystander(const char* bytes, size_t length);

#endif /* NANWATCH_SHIM_ENTRY_BYSTANDER_H_ */
