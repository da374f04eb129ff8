// SPDX-License-Identifier: Apache-2.0
/* The dynamic loader, as the entry sees it. The only file beside the assembler stub that knows how
 * dlopen is reached: our own exported dlopen must never be called from inside.
 *
 * Version needs. On glibc 2.34 and later dlsym, dladdr and dlerror moved into libc.so.6 under a new
 * version, and a library that was linked there fails to load on any older host, in every process of
 * the job. loader.c therefore asks for the versions that every glibc has, and the link line names
 * libdl.so.2 itself, because before 2.34 they live there. tests/artifact holds the line. */
#ifndef NANWATCH_SHIM_ENTRY_LOADER_H_
#define NANWATCH_SHIM_ENTRY_LOADER_H_

#include <stdbool.h>
#include <stddef.h>

enum { NANWATCH_PATH_MAX = 4096 };

/* The next dlopen after ours; never null (where there is none, a function that fails). Any thread,
 * also before our constructor. */
void* loader_real_dlopen(void);

/* dlopen(3) and dlsym(3) without notifying ourselves. */
void* loader_open(const char* path, int flags);
void* loader_symbol(void* handle, const char* name);

/* dlsym(RTLD_DEFAULT, name): the first definition of the process's global scope. */
void* loader_global_symbol(const char* name);

/* dlerror(3), never null. */
const char* loader_error(void);

/* Path of the shared object that holds `address`, as the loader names it; null if none does. Lives
 * as long as that object. */
const char* loader_object_path(const void* address);

/* Copies the loader's name of the first mapped object whose file name is `file` or begins with
 * `file` and a dot ("libtorch_cpu.so", "libtorch_cpu.so.2.6") into `path`; false if none is mapped.
 * Objects named `except` are passed over (null: none). Takes the loader's list lock for the walk
 * (1.3 us for 287 objects), allocates nothing. `last_adds` holds the loader's count of objects ever
 * added at the last walk: unchanged, the walk stops at its first entry (8 ns) and the answer is
 * false. Start with 0. */
bool loader_find_object(const char* file, const char* except, char path[NANWATCH_PATH_MAX],
                        unsigned long long* last_adds);

#endif /* NANWATCH_SHIM_ENTRY_LOADER_H_ */
