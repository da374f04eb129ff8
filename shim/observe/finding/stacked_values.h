// SPDX-License-Identifier: Apache-2.0
// What a batch was stacked of whose parts are bad for long: a memory of transitions, a list of
// losses. Such values are no reason to ask ops for their inputs (bad_values.h), so the op that
// stacks them did not hand over its own. But their memory is known, and its bytes stand in the
// result.
//
// Threads: any. Called only where something is bad.
#pragma once

#include "shim/classify/bad_values.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class StackedValues {
 public:
  // It outlives this object.
  explicit StackedValues(BadValues& bad_values) noexcept : bad_values_(bad_values) {}

  // Adds, for an op that stacks or joins tensors along the first dimension, those values whose
  // bytes are rows of `output`. They are assumed (Sources::assumed) where other rows are bad, too,
  // or where not one number of such a row is finite: two NaN look alike.
  void AddSources(const Frame& frame, const BadOutput& output, Sources* sources) noexcept;

  static constexpr uint64_t kBytesMax = uint64_t{16} << 20;  // of a result that is searched
  static constexpr int64_t kRowsMax = 4096;

 private:
  BadValues& bad_values_;
};

}  // namespace nanwatch
