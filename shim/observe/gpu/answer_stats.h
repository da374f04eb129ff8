// SPDX-License-Identifier: Apache-2.0
// What a GPU has answered about a tensor, as a record has it.
#pragma once

#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/queued_events.h"

namespace nanwatch {

// What the table knows stands for what was not looked at.
inline uint8_t KindsOf(const BadEntry& entry) {
  return entry.kinds != 0 ? entry.kinds : wire::kHasNan;
}

inline void FillOutput(const device::CheckResult& result, int place, wire::TensorStats* stats) {
  FillCounts(result.outputs[place], result.output_kinds[place], result.brief != 0, stats);
}

inline void FillInput(const device::CheckResult& result, int place, wire::TensorStats* stats) {
  FillCounts(result.inputs[place], result.input_kinds[place], result.brief != 0, stats);
}

}  // namespace nanwatch
