// SPDX-License-Identifier: Apache-2.0
// Segments and emitters live as long as their process and are leaked on purpose (segment_file.h),
// so there is nothing for the leak sanitizer to find in tests of them.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_options() {
  return "detect_leaks=0";
}
