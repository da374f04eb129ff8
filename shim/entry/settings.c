// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/settings.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* Names as in proto/wire/naming.h, which is C++. */
static const char kEnvSwitch[] = "NANWATCH=";
static const char kEnvLog[] = "NANWATCH_LOG=";

static const char* value_of(const char* name_and_equals) {
  if (environ == NULL) return NULL;
  size_t length = strlen(name_and_equals);
  for (char** entry = environ; *entry != NULL; ++entry) {
    if (strncmp(*entry, name_and_equals, length) == 0) return *entry + length;
  }
  return NULL;
}

void settings_read(struct settings* settings) {
  const char* value = value_of(kEnvSwitch);
  settings->switched_off = value != NULL && strcmp(value, "0") == 0;

  value = value_of(kEnvLog);
  if (value == NULL || strcmp(value, "stderr") == 0) return;
  size_t length = strlen(value);
  if (length < sizeof settings->log_path) memcpy(settings->log_path, value, length + 1);
}
