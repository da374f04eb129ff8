// SPDX-License-Identifier: Apache-2.0
// What an op has picked out of a value that has been bad for long, such as rows of a table. Such
// values are no reason to ask ops for their inputs (bad_values.h), but their memory is known, and
// the numbers of the result stand in it.
//
// Threads: any. Called only where something is bad.
#pragma once

#include <cstdint>

#include "shim/classify/bad_values.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class PickedValues {
 public:
  // It outlives this object.
  explicit PickedValues(BadValues& bad_values) noexcept : bad_values_(bad_values) {}

  // The one value of those that ops have written and that have been bad for long, in whose memory
  // the finite numbers of `output` stand; of a large result the first kNumbersMax of them. False:
  // none or several have them, or `output` has none but zeros. `kinds`: what is bad in `output`.
  bool Find(const BadOutput& output, uint8_t kinds, BadEntry* found) noexcept;

  static constexpr int kNumbersMax = 64;
  static constexpr uint64_t kBytesMax = uint64_t{16} << 20;  // of a value that is searched

 private:
  BadValues& bad_values_;
};

}  // namespace nanwatch
