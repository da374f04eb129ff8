// SPDX-License-Identifier: Apache-2.0
/* Makes threads other than the main one slow inside the observer, so that the main thread overtakes
 * a thread of a process group that has found a bad value and not yet recorded it. Preloaded before
 * the library under test. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const long kDelayNs = 2 * 1000 * 1000;

static int is_observers(void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != NULL &&
         strstr(info.dli_fname, "libnanwatch_observer") != NULL;
}

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static int (*next)(pthread_mutex_t*);
  if (next == NULL) next = (int (*)(pthread_mutex_t*))dlsym(RTLD_NEXT, "pthread_mutex_lock");
  if (syscall(SYS_gettid) != getpid() && is_observers(__builtin_return_address(0))) {
    const struct timespec delay = {0, kDelayNs};
    nanosleep(&delay, NULL);
  }
  return next(mutex);
}
