// SPDX-License-Identifier: Apache-2.0
// Included by the compiler in front of every file that goes into an observer (add_component, SIDE
// job), so that the observer loads on hosts whose glibc is older than that of the machine that
// built it: RHEL 8 has 2.28, and torch's wheels ask for no more.
//
// glibc 2.34 moved libpthread and libdl into libc and gave their functions a new version, to which
// this machine's linker binds a plain name. Each also has its oldest version, the same code on
// every host; asking for that one by name is enough. A line for a function that a file does not use
// has no effect. tests/artifact fails when a name is missing here.
#pragma once

#if defined(__x86_64__)
#define NANWATCH_OLDEST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define NANWATCH_OLDEST_GLIBC "GLIBC_2.17"
#endif
#define NANWATCH_OLDEST(function) \
  __asm__(".symver " #function ", " #function "@" NANWATCH_OLDEST_GLIBC)

NANWATCH_OLDEST(dladdr);
NANWATCH_OLDEST(dlopen);
NANWATCH_OLDEST(dlsym);
NANWATCH_OLDEST(pthread_create);
NANWATCH_OLDEST(pthread_detach);
NANWATCH_OLDEST(pthread_getspecific);
NANWATCH_OLDEST(pthread_join);
NANWATCH_OLDEST(pthread_key_create);
NANWATCH_OLDEST(pthread_key_delete);
NANWATCH_OLDEST(pthread_mutex_trylock);
NANWATCH_OLDEST(pthread_once);
NANWATCH_OLDEST(pthread_setspecific);
NANWATCH_OLDEST(pthread_sigmask);

#undef NANWATCH_OLDEST
#undef NANWATCH_OLDEST_GLIBC
