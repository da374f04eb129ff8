// SPDX-License-Identifier: Apache-2.0
/* An observer that the loader refuses: it needs a symbol that nobody has. */
#include "shim/entry/observer_interface.h"

extern int symbol_that_this_libtorch_lacks(void);

__attribute__((visibility("default"))) int nanwatch_observer_start(
    const struct NanwatchEntry* entry) {
  (void)entry;
  return symbol_that_this_libtorch_lacks();
}
