// SPDX-License-Identifier: Apache-2.0
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
  _Atomic uint32_t forks;  /* threads of this process that are between the gate's close and open */
  _Atomic uint32_t inside; /* 1: the watch thread is past the gate */
};

/* A zeroed page; null when there is no memory. `wiped_by_kernel` tells whether the kernel will zero
 * it in children. */
struct fork_page* fork_page_make(bool* wiped_by_kernel);

void fork_page_free(struct fork_page* page);

/* What the atfork handler of an old kernel does in the child. */
void fork_page_zero(struct fork_page* page);

/* The gate between fork() and the loader's locks. glibc does not reset the lock of the loader's
 * list in a forked child: forked while another thread walks the list, the child hangs in its next
 * dlopen (seen on glibc 2.36). So the watch thread passes this gate before it walks the list or
 * loads the observer, and the atfork handlers close it around a fork.
 *
 *     watch thread   enter .. walk .. leave         enter: false while a fork is on its way
 *     forking thread        close ...... fork .. open     close: waits for leave, 200 ms at most
 *
 * The wait is bounded because a library's constructor may fork under the lock that the watch thread
 * waits for inside the gate. Each side first says what it is about to do and then looks at the
 * other, sequentially consistent, so that one of the two sees the other. */
bool fork_gate_enter(struct fork_page* page);
void fork_gate_leave(struct fork_page* page);
void fork_gate_close(struct fork_page* page);
void fork_gate_open(struct fork_page* page);

#endif /* NANWATCH_SHIM_ENTRY_FORK_PAGE_H_ */
