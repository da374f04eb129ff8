// SPDX-License-Identifier: Apache-2.0
/* A library with a private dependency that only its own RUNPATH ($ORIGIN/private) leads to. */
#include <dlfcn.h>

__attribute__((visibility("default"))) const char* open_private(void) {
  void* inner = dlopen("libprivate_inner.so", RTLD_NOW);
  const char* (*greet)(void) = inner != 0 ? dlsym(inner, "greet") : 0;
  return greet != 0 ? greet() : dlerror();
}
