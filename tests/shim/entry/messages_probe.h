// SPDX-License-Identifier: Apache-2.0
// shim/entry/messages.h for C++ tests: that header uses C11 atomics, which C++20 cannot read.
#pragma once

extern "C" {
void messages_probe_begin(const char* log_path);
void messages_probe_say(const char* line);
}
