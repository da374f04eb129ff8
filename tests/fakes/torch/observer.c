// SPDX-License-Identifier: Apache-2.0
/* Stands in for an observer: says in one line what it was told and what state it found libtorch in.
 * With FAKE_OBSERVER_STEPS_DOWN it refuses, as one built for another torch does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/entry/observer_interface.h"

static int signals_open(void) {
  sigset_t blocked;
  int open = 0;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  for (int signal = 1; signal < 32; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP && sigismember(&blocked, signal) == 0) ++open;
  }
  return open;
}

__attribute__((visibility("default"))) int nanwatch_observer_start(
    const struct NanwatchEntry* entry) {
  if (getenv("FAKE_OBSERVER_STEPS_DOWN") != NULL) {
    entry->say("the fake observer steps down");
    return 1;
  }
  void* torch = dlopen(entry->libtorch_path, RTLD_NOLOAD | RTLD_NOW);
  const int* constructed = torch != NULL ? dlsym(torch, "fake_torch_constructed") : NULL;
  char line[1024];
  *entry->active = 1;
  snprintf(line, sizeof line,
           "observer torch=%s constructed=%d pid=%d interface=%u bytes_right=%d wiped_by_kernel=%u "
           "signals_open=%d library=%s late_level=%s late_directory=%s active_at=%p",
           entry->torch_version, constructed != NULL ? *constructed : -1, (int)getpid(),
           entry->interface_version, entry->struct_bytes == sizeof *entry,
           entry->active_is_wiped_by_kernel, signals_open(), entry->library_path,
           entry->late_level != NULL ? entry->late_level : "",
           entry->late_directory != NULL ? entry->late_directory : "", (void*)entry->active);
  entry->say(line);
  return 0;
}
