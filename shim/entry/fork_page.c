#define _GNU_SOURCE
#include "shim/entry/fork_page.h"

#include <stddef.h>
#include <sys/mman.h>
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
  atomic_store_explicit(&page->watched, 0, memory_order_relaxed);
}
