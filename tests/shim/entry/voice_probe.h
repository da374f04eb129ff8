// SPDX-License-Identifier: Apache-2.0
// shim/entry/voice.h for C++ tests: that header speaks C11 atomics, which C++20 does not read.
#pragma once

extern "C" {
void voice_probe_begin(const char* log_path);
void voice_probe_say(const char* line);
}
