#include <dlfcn.h>

#include "shim/entry/watch.h"

void watch_probe_begin(int patience_ms);
void watch_probe_sign(void);
bool watch_probe_is_watching(void);
int watch_probe_times_found(void);
void watch_probe_open(const char* path);
bool watch_probe_is_sign(const char* name);

static _Atomic int times_found;
static struct watch probed;
static struct fork_page page;

static void count_found(const char* libtorch_path) {
  (void)libtorch_path;
  ++times_found;
}

void watch_probe_begin(int patience_ms) {
  probed.found = count_found;
  probed.patience_ms = patience_ms;
}

void watch_probe_sign(void) { watch_sign(&probed, &page); }
bool watch_probe_is_watching(void) { return atomic_load(&page.watched) != 0; }
int watch_probe_times_found(void) { return times_found; }
void watch_probe_open(const char* path) { dlopen(path, RTLD_NOW); }
bool watch_probe_is_sign(const char* name) { return name_is_sign(name); }
