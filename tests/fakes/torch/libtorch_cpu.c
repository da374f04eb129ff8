// SPDX-License-Identifier: Apache-2.0
/* Stands in for libtorch_cpu.so: its constructor takes a while, as the real one does (0.5 s), and
 * notes what it saw. */
#define _GNU_SOURCE
#include <dirent.h>
#include <time.h>
#include <unistd.h>

int fake_torch_constructed;         /* times that the constructor ended */
int fake_torch_threads_during_load; /* threads of the process while it ran */
int fake_torch_constructed_on_main; /* 1: it ran on the process's first thread */

static int thread_count(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == NULL) return -1;
  for (struct dirent* entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(tasks);
  return count;
}

__attribute__((constructor)) static void construct(void) {
  static const struct timespec kWhile = {.tv_sec = 0, .tv_nsec = 100 * 1000 * 1000};
  fake_torch_constructed_on_main = gettid() == getpid();
  fake_torch_threads_during_load = thread_count();
  nanosleep(&kWhile, NULL);
  ++fake_torch_constructed;
}
