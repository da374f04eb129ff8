// SPDX-License-Identifier: Apache-2.0
/* Where libnanwatch.so lies, and the observers with it: `nanwatch/libnanwatch_observer-2.11.so` in
 * the same folder. */
#ifndef NANWATCH_SHIM_ENTRY_LIBRARY_PLACE_H_
#define NANWATCH_SHIM_ENTRY_LIBRARY_PLACE_H_

#include <stdbool.h>

#include "shim/entry/loader.h"

/* Copies the absolute path of this library; false if it is not known. Constructor only: a relative
 * LD_PRELOAD is relative to the folder that the process starts in, and only in that case the kernel
 * is asked for it. */
bool library_place_find(char path[NANWATCH_PATH_MAX]);

/* The observer for torch `minor` ("2.11"): beside the library as named, else beside what that name
 * links to. False if neither exists; `observer` then names the first place. */
bool library_place_observer(const char* library, const char* minor,
                            char observer[NANWATCH_PATH_MAX]);

#endif /* NANWATCH_SHIM_ENTRY_LIBRARY_PLACE_H_ */
