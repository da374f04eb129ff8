// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/loader_watch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
  kPollInterval_ms = 5,
  kStackBytes =
      1 << 20, /* the observer runs torch ops on this thread; untouched pages cost nothing */
};

bool name_is_sign(const char* name) {
  if (name == NULL) return false;
  size_t length = strlen(name);
  int slashes = 0;
  while (length > 0) {
    if (name[length - 1] == '/' && ++slashes == 2) break;
    --length;
  }
  return strstr(name + length, "torch") != NULL;
}

static void sleep_one_interval(void) {
  static const struct timespec kInterval = {.tv_sec = 0, .tv_nsec = kPollInterval_ms * 1000000L};
  nanosleep(&kInterval, NULL);
}

bool libtorch_is_constructed(const char* path) {
  return loader_open(path, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL) != NULL;
}

static bool libtorch_is_mapped(struct fork_page* page, char path[NANWATCH_PATH_MAX],
                               unsigned long long* last_adds) {
  if (!fork_gate_enter(page)) return false;
  bool mapped = loader_find_object(NANWATCH_LIBTORCH, NULL, path, last_adds);
  fork_gate_leave(page);
  return mapped;
}

/* Polls until libtorch is ready. False if patience ends without another sign. */
static bool wait_for_libtorch(struct loader_watch* watch, char path[NANWATCH_PATH_MAX]) {
  struct fork_page* page = atomic_load(&watch->page);
  unsigned long long last_adds = 0;
  unsigned signs = atomic_load(&watch->signs);
  for (int waited_ms = 0; waited_ms < watch->patience_ms; waited_ms += kPollInterval_ms) {
    if (libtorch_is_mapped(page, path, &last_adds) && libtorch_is_constructed(path)) return true;
    sleep_one_interval();
    unsigned signs_now = atomic_load(&watch->signs);
    if (signs_now != signs) waited_ms = 0;
    signs = signs_now;
  }
  return false;
}

static void* watch_main(void* argument) {
  struct loader_watch* watch = argument;
  struct fork_page* page = atomic_load(&watch->page);
  prctl(PR_SET_NAME, "nanwatch");
  for (;;) {
    char path[NANWATCH_PATH_MAX];
    unsigned signs = atomic_load(&watch->signs);
    if (wait_for_libtorch(watch, path)) {
      if (!atomic_exchange(&watch->over, true)) watch->found(path);
      return NULL;
    }
    atomic_store(&page->watched, 0);
    /* A sign between the last poll and this store believed that the thread goes on. */
    if (atomic_load(&watch->signs) == signs) return NULL;
    if (atomic_exchange(&page->watched, 1) != 0) return NULL;
  }
}

/* Looked up when needed: before glibc 2.34 they live in libpthread, and linking that would bring it
 * into every process of the job. A process that loads torch has it. */
struct thread_library {
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  int (*attr_init)(pthread_attr_t*);
  int (*attr_setdetachstate)(pthread_attr_t*, int);
  int (*attr_setstacksize)(pthread_attr_t*, size_t);
  int (*attr_destroy)(pthread_attr_t*);
};

static bool find_thread_library(struct thread_library* library) {
  *(void**)&library->create = loader_global_symbol("pthread_create");
  *(void**)&library->attr_init = loader_global_symbol("pthread_attr_init");
  *(void**)&library->attr_setdetachstate = loader_global_symbol("pthread_attr_setdetachstate");
  *(void**)&library->attr_setstacksize = loader_global_symbol("pthread_attr_setstacksize");
  *(void**)&library->attr_destroy = loader_global_symbol("pthread_attr_destroy");
  return library->create != NULL && library->attr_init != NULL &&
         library->attr_setdetachstate != NULL && library->attr_setstacksize != NULL &&
         library->attr_destroy != NULL;
}

static bool start_thread(struct loader_watch* watch) {
  struct thread_library library;
  pthread_attr_t attributes;
  if (!find_thread_library(&library) || library.attr_init(&attributes) != 0) return false;
  library.attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  library.attr_setstacksize(&attributes, kStackBytes);

  /* The thread inherits the mask: no signal of the job is ever delivered on it. sigprocmask is this
   * thread's, on Linux. */
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  bool started = library.create(&thread, &attributes, watch_main, watch) == 0;
  sigprocmask(SIG_SETMASK, &before, NULL);
  library.attr_destroy(&attributes);
  return started;
}

void loader_watch_sign(struct loader_watch* watch, struct fork_page* page) {
  if (atomic_load(&watch->over)) return;
  atomic_store(&watch->page, page);
  atomic_fetch_add(&watch->signs, 1);
  if (atomic_exchange(&page->watched, 1) != 0) return;
  if (!start_thread(watch)) atomic_store(&page->watched, 0);
}
