// SPDX-License-Identifier: Apache-2.0
// shim/entry/watch.h for C++ tests: that header speaks C11 atomics, which C++20 does not read. One
// watch a process.
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
void watch_probe_begin(int patience_ms);
void watch_probe_sign(void);
bool watch_probe_is_watching(void);
int watch_probe_times_found(void);
void watch_probe_open(const char* path);
bool watch_probe_is_sign(const char* name);

// The fork gate of a page of its own.
bool gate_probe_enter(void);
void gate_probe_leave(void);
void gate_probe_close(void);
void gate_probe_open(void);
bool gate_probe_is_empty(void);  // nobody is past it
#ifdef __cplusplus
}
#endif
