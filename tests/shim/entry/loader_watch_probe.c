// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/entry/loader_watch_probe.h"

#include <dlfcn.h>

#include "shim/entry/loader_watch.h"

static _Atomic int times_found;
static struct loader_watch probed;
static struct fork_page page;

static void count_found(const char* libtorch_path) {
  (void)libtorch_path;
  ++times_found;
}

void loader_watch_probe_begin(int patience_ms) {
  probed.found = count_found;
  probed.patience_ms = patience_ms;
}

void loader_watch_probe_sign(void) { loader_watch_sign(&probed, &page); }
bool loader_watch_probe_is_watching(void) { return atomic_load(&page.watched) != 0; }
int loader_watch_probe_times_found(void) { return times_found; }
void loader_watch_probe_open(const char* path) { dlopen(path, RTLD_NOW); }
bool loader_watch_probe_is_sign(const char* name) { return name_is_sign(name); }

static struct fork_page gate;

bool gate_probe_enter(void) { return fork_gate_enter(&gate); }
void gate_probe_leave(void) { fork_gate_leave(&gate); }
void gate_probe_close(void) { fork_gate_close(&gate); }
void gate_probe_open(void) { fork_gate_open(&gate); }
bool gate_probe_is_empty(void) { return atomic_load(&gate.inside) == 0; }
