// SPDX-License-Identifier: Apache-2.0
#include <stddef.h>

#include "shim/entry/messages.h"

void messages_probe_begin(const char* log_path);
void messages_probe_say(const char* line);

static struct messages probed;

void messages_probe_begin(const char* log_path) {
  probed.log_path = log_path;
  probed.lines = 0;
}

void messages_probe_say(const char* line) { messages_write(&probed, line); }
