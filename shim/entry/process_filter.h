// SPDX-License-Identifier: Apache-2.0
/* Filters out processes that load torch but never train: compile workers of torch.compile and the
 * resource tracker of multiprocessing. The fork server is not filtered. Its children share its
 * command line and, if it preloads torch, its libtorch, and some of them train. An observer costs
 * nothing there: it creates no segment before it has something to record. */
#ifndef NANWATCH_SHIM_ENTRY_PROCESS_FILTER_H_
#define NANWATCH_SHIM_ENTRY_PROCESS_FILTER_H_

#include <stdbool.h>
#include <stddef.h>

/* Whether this process is filtered out, by /proc/self/cmdline. Watch thread. */
bool process_is_filtered(void);

/* The same for the bytes of a command line (each argument ends with a zero byte). */
bool command_line_is_filtered(const char* bytes, size_t length);

#endif /* NANWATCH_SHIM_ENTRY_PROCESS_FILTER_H_ */
