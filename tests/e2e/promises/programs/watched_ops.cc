// SPDX-License-Identifier: Apache-2.0
// Lets a Python program ask whether somebody watches its ops, as libtorch sees it.
#include <ATen/record_function.h>

extern "C" __attribute__((visibility("default"))) int ops_are_watched() {
  return at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value() ? 1 : 0;
}
