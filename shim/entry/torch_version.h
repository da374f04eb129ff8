// SPDX-License-Identifier: Apache-2.0
/* Which torch a libtorch_cpu.so belongs to, read from the files beside it and never guessed. */
#ifndef NANWATCH_SHIM_ENTRY_TORCH_VERSION_H_
#define NANWATCH_SHIM_ENTRY_TORCH_VERSION_H_

#include <stdbool.h>

struct torch_version {
  char full[64];  /* "2.11.0+cu130"; "2.6" where only the file name told it */
  char minor[16]; /* "2.11": what an observer is built for */
};

/* Looked at in this order, beside the path as named and then beside what it links to:
 * `../version.py` (a Python package), `../build-version` (the LibTorch archive), the file name's
 * own suffix (`libtorch_cpu.so.2.6`, distributions). False when none of them tells. Watch thread;
 * reads files, allocates nothing. */
bool torch_version_of(const char* libtorch_path, struct torch_version* version);

/* The two texts it reads, as pure functions; false when there is no version in them. */
bool torch_version_from_python(const char* version_py, struct torch_version* version);
bool torch_version_from_text(const char* text, struct torch_version* version);

#endif /* NANWATCH_SHIM_ENTRY_TORCH_VERSION_H_ */
