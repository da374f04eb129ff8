// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/fork_page.h"

#include <stddef.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* headers older than Linux 4.14 */
#endif

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

struct fork_page* fork_page_make(bool* wiped_by_kernel) {
  void* page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  *wiped_by_kernel = madvise(page, page_bytes(), MADV_WIPEONFORK) == 0;
  return page;
}

void fork_page_free(struct fork_page* page) { munmap(page, page_bytes()); }

void fork_page_zero(struct fork_page* page) {
  page->active = 0;
  page->watched = 0;
  page->forks = 0;
  page->inside = 0;
}

bool fork_gate_enter(struct fork_page* page) {
  atomic_store(&page->inside, 1);
  if (atomic_load(&page->forks) == 0) return true;
  atomic_store(&page->inside, 0);
  return false;
}

void fork_gate_leave(struct fork_page* page) { atomic_store(&page->inside, 0); }

void fork_gate_close(struct fork_page* page) {
  static const struct timespec kPause = {.tv_sec = 0, .tv_nsec = 100 * 1000};
  enum { kPausesMax = 2000 };
  atomic_fetch_add(&page->forks, 1);
  for (int pause = 0; pause < kPausesMax && atomic_load(&page->inside) != 0; ++pause) {
    nanosleep(&kPause, NULL);
  }
}

void fork_gate_open(struct fork_page* page) { atomic_fetch_sub(&page->forks, 1); }
