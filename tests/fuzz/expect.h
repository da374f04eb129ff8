// SPDX-License-Identifier: Apache-2.0
// What a fuzz target asserts: an abort is what a fuzzer, and a test, takes for a finding.
#pragma once

#include <cstdlib>

namespace nanwatch {

inline void Expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace nanwatch
