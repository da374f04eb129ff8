// SPDX-License-Identifier: Apache-2.0
// shim/entry/loader_watch.h for C++ tests: that header uses C11 atomics, which C++20 cannot read.
// One loader watch per process.
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
void loader_watch_probe_begin(int patience_ms);
void loader_watch_probe_sign(void);
bool loader_watch_probe_is_watching(void);
int loader_watch_probe_times_found(void);
void loader_watch_probe_open(const char* path);
bool loader_watch_probe_is_sign(const char* name);

// The fork gate of a page of its own.
bool gate_probe_enter(void);
void gate_probe_leave(void);
void gate_probe_close(void);
void gate_probe_open(void);
bool gate_probe_is_empty(void);  // nobody is past it
#ifdef __cplusplus
}
#endif
