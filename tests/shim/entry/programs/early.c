// SPDX-License-Identifier: Apache-2.0
/* A library whose constructor runs before the preload library's and opens libtorch, named by
 * EARLY_OPEN. */
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((constructor)) static void open_early(void) {
  const char* path = getenv("EARLY_OPEN");
  if (path != 0) dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}
