// SPDX-License-Identifier: Apache-2.0
#include <stddef.h>

#include "shim/entry/voice.h"

void voice_probe_begin(const char* log_path);
void voice_probe_say(const char* line);

static struct voice probed;

void voice_probe_begin(const char* log_path) {
  probed.log_path = log_path;
  probed.lines = 0;
}

void voice_probe_say(const char* line) { voice_say(&probed, line); }
