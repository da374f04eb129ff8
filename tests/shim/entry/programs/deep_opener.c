// SPDX-License-Identifier: Apache-2.0
/* A library that names the libc it was linked to: opened with RTLD_DEEPBIND, it calls the dlopen of
 * that libc, whatever was preloaded. */
#include <dlfcn.h>

__attribute__((visibility("default"))) void* open_deep(const char* path) {
  return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}
