/* The words that a forked child must find at zero, in a page of their own: private, anonymous,
 * MADV_WIPEONFORK. The kernel zeroes it in the child of fork and of raw clone, before the child
 * runs a single instruction; a vfork child shares it, and execs. Before Linux 4.14 the owner's
 * pthread_atfork handler zeroes it instead, which raw clone does not run. */
#ifndef NANWATCH_SHIM_ENTRY_FORK_PAGE_H_
#define NANWATCH_SHIM_ENTRY_FORK_PAGE_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fork_page {
  volatile uint32_t active; /* the observer's: this process is observed */
  _Atomic uint32_t
      watched; /* 1: this process has a watch thread; 0: none, also in the child of one that has */
};

/* A zeroed page; null when there is no memory. `wiped_by_kernel` tells whether the kernel will zero
 * it in children. */
struct fork_page* fork_page_make(bool* wiped_by_kernel);

void fork_page_free(struct fork_page* page);

/* What the atfork handler of an old kernel does in the child. */
void fork_page_zero(struct fork_page* page);

#endif /* NANWATCH_SHIM_ENTRY_FORK_PAGE_H_ */
