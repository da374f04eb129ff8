// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/observer_load.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/entry/library_place.h"
#include "shim/entry/loader.h"
#include "shim/entry/torch_version.h"

/* dlopen past the fork gate: a child forked in the middle would have half an observer. */
static void* load_between_forks(const char* path, struct fork_page* page) {
  static const struct timespec kPause = {.tv_sec = 0, .tv_nsec = 1000 * 1000};
  while (!fork_gate_enter(page)) nanosleep(&kPause, NULL);
  void* observer = loader_open(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  fork_gate_leave(page);
  return observer;
}

static nanwatch_observer_start_fn open_observer(const char* path, struct fork_page* page,
                                                struct messages* messages) {
  void* observer = load_between_forks(path, page);
  if (observer == NULL) {
    messages_writef(messages, "the observer could not be loaded: %s. This process is not observed.",
                    loader_error());
    return NULL;
  }
  nanwatch_observer_start_fn start =
      (nanwatch_observer_start_fn)loader_symbol(observer, NANWATCH_OBSERVER_START);
  if (start == NULL) {
    messages_writef(messages,
                    "%s is not an observer for this version of nanwatch: build it again. This "
                    "process is not observed.",
                    path);
  }
  return start;
}

/* PREFIX/bin/python3.11 for PREFIX/lib/python3.11/site-packages/torch/..., "PY" for a torch
 * elsewhere. /proc/self/exe would be wrong: in a virtual environment it is the Python outside,
 * without torch. */
static void python_of_torch(const char* libtorch_path, char python[NANWATCH_PATH_MAX]) {
  const char* end = NULL;
  for (const char* at = libtorch_path; (at = strstr(at, "/python3")) != NULL; ++at) {
    bool in_lib = at - libtorch_path >= 4 && strncmp(at - 4, "/lib", 4) == 0;
    bool in_lib64 = at - libtorch_path >= 6 && strncmp(at - 6, "/lib64", 6) == 0;
    if (!in_lib && !in_lib64) continue;
    end = at - (in_lib ? 4 : 6);
    snprintf(python, NANWATCH_PATH_MAX, "%.*s/bin%.*s", (int)(end - libtorch_path), libtorch_path,
             (int)strcspn(at + 1, "/") + 1, at);
  }
  if (end == NULL || access(python, X_OK) != 0) strcpy(python, "PY");
}

/* The verb runs a script of the same installation, on sources that lie there. */
static void say_how_to_build(const struct torch_version* version, const char* libtorch_path,
                             const char* observer, const char* library, struct messages* messages,
                             struct process_mark* mark) {
  char python[NANWATCH_PATH_MAX];
  char command[3 * NANWATCH_PATH_MAX];
  char detail[768];
  python_of_torch(libtorch_path, python);
  const char* end = strstr(library, "/lib/libnanwatch.so");
  int prefix = end != NULL ? (int)(end - library) : 0;
  snprintf(command, sizeof command, "%.*s/bin/nanwatch build-observer --python %s", prefix, library,
           python);
  messages_writef(
      messages,
      "found torch %s, but no observer for it (%s): this process is not observed. To build "
      "one: %s%s",
      version->full, observer, command,
      strcmp(python, "PY") == 0 ? ", where PY is the Python that has this torch" : "");
  snprintf(detail, sizeof detail, "%.60s: %.700s", version->full, command);
  mark_set_final(mark, "no_observer", detail);
}

bool observer_load(struct NanwatchEntry* entry, const char* libtorch_path, struct fork_page* page,
                   struct messages* messages, struct process_mark* mark) {
  struct torch_version version;
  if (!torch_version_of(libtorch_path, &version)) {
    messages_writef(
        messages,
        "the version of %s is unknown (there is no ../version.py or ../build-version next to it). "
        "This process is not observed.",
        libtorch_path);
    return false;
  }
  char observer[NANWATCH_PATH_MAX];
  if (!library_place_observer(entry->library_path, version.minor, observer)) {
    say_how_to_build(&version, libtorch_path, observer, entry->library_path, messages, mark);
    return false;
  }
  entry->torch_version = strdup(version.full);
  entry->libtorch_path = strdup(libtorch_path);
  if (entry->torch_version == NULL || entry->libtorch_path == NULL) return false;

  nanwatch_observer_start_fn start = open_observer(observer, page, messages);
  return start != NULL && start(entry) == 0; /* else it stepped down, and has said why */
}
