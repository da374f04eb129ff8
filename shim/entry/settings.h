// SPDX-License-Identifier: Apache-2.0
/* What the environment asked for, read once in the constructor and copied: programs overwrite the
 * environment later (setproctitle), some bring their own getenv (bash), and we never change it. */
#ifndef NANWATCH_SHIM_ENTRY_SETTINGS_H_
#define NANWATCH_SHIM_ENTRY_SETTINGS_H_

#include <stdbool.h>

#include "shim/entry/loader.h"

struct settings {
  bool switched_off;                /* NANWATCH=0 */
  char log_path[NANWATCH_PATH_MAX]; /* NANWATCH_LOG; "": stderr */
};

/* Expects zeroed memory and touches only what is set. Constructor only. */
void settings_read(struct settings* settings);

#endif /* NANWATCH_SHIM_ENTRY_SETTINGS_H_ */
