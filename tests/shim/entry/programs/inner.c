// SPDX-License-Identifier: Apache-2.0
__attribute__((visibility("default"))) const char* greet(void) { return "private library found"; }
