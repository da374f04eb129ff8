// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/loader.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#define NANWATCH_OLDEST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define NANWATCH_OLDEST_GLIBC "GLIBC_2.17"
#endif
__asm__(".symver dlsym, dlsym@" NANWATCH_OLDEST_GLIBC);
__asm__(".symver dladdr, dladdr@" NANWATCH_OLDEST_GLIBC);
__asm__(".symver dlerror, dlerror@" NANWATCH_OLDEST_GLIBC);

typedef void* (*dlopen_fn)(const char*, int);

static void* no_dlopen(const char* path, int flags) {
  (void)path;
  (void)flags;
  return NULL;
}

void* loader_real_dlopen(void) {
  /* Looked up once; two threads that race here find the same address. */
  static _Atomic(void*) known;
  void* real = atomic_load_explicit(&known, memory_order_relaxed);
  if (real != NULL) return real;
  real = dlsym(RTLD_NEXT, "dlopen");
  if (real == NULL) real = (void*)no_dlopen;
  atomic_store_explicit(&known, real, memory_order_relaxed);
  return real;
}

void* loader_open(const char* path, int flags) {
  return ((dlopen_fn)loader_real_dlopen())(path, flags);
}

void* loader_symbol(void* handle, const char* name) { return dlsym(handle, name); }

void* loader_global_symbol(const char* name) {
  void* symbol = dlsym(RTLD_DEFAULT, name);
  if (symbol == NULL) (void)dlerror(); /* the next dlerror() on this thread is the host's */
  return symbol;
}

const char* loader_error(void) {
  const char* text = dlerror();
  return text != NULL ? text : "the loader gave no reason";
}

const char* loader_object_path(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0) return NULL;
  return info.dli_fname;
}

struct object_walk {
  const char* file;
  const char* except;
  char* path;
  unsigned long long* last_adds;
  bool first;
};

static bool is_file_named(const char* path, const char* file) {
  const char* slash = strrchr(path, '/');
  const char* name = slash != NULL ? slash + 1 : path;
  size_t length = strlen(file);
  return strncmp(name, file, length) == 0 && (name[length] == '\0' || name[length] == '.');
}

/* Runs under the loader's lock: no allocation, no call back into the loader. */
static int look_at_object(struct dl_phdr_info* object, size_t bytes, void* context) {
  (void)bytes;
  struct object_walk* walk = context;
  if (walk->first) {
    walk->first = false;
    if (object->dlpi_adds == *walk->last_adds) return -1;
    *walk->last_adds = object->dlpi_adds;
  }
  const char* name = object->dlpi_name;
  if (name == NULL || !is_file_named(name, walk->file)) return 0;
  if (walk->except != NULL && strcmp(name, walk->except) == 0) return 0;
  size_t length = strlen(name);
  if (length >= NANWATCH_PATH_MAX) return 0;
  memcpy(walk->path, name, length + 1);
  return 1;
}

bool loader_find_object(const char* file, const char* except, char path[NANWATCH_PATH_MAX],
                        unsigned long long* last_adds) {
  struct object_walk walk = {
      .file = file, .except = except, .path = path, .last_adds = last_adds, .first = true};
  return dl_iterate_phdr(look_at_object, &walk) == 1;
}
