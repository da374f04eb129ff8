// SPDX-License-Identifier: Apache-2.0
// Which samples a DataLoader was fetching when a finding was recorded. Follows the tensors of a
// ValueRecord (record.h) with kHasSamples, within the same record. A reader that does not know the
// flag ignores what follows the tensors.
//
// It takes the room of two tensors, so a record with samples has at most kTensorsWithSamplesMax
// tensors, and the longest record is as long as before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/wire/record.h"

namespace nanwatch::wire {

inline constexpr int kLoaderSamplesMax = 16;
inline constexpr int kTensorsOfSamples = 2;
inline constexpr int kTensorsWithSamplesMax = kOutputsMax + kInputsMax - kTensorsOfSamples;

struct LoaderSamples {
  enum Flag : uint8_t {
    kWholeBatch = 1,  // the batch is known, but not which of its samples it was
  };
  uint32_t of_batch;  // indices in the batch; 0: the loader fetches single samples
  uint8_t count;      // indices in `text`, at most kLoaderSamplesMax
  uint8_t flags;
  uint16_t text_bytes;
  // The indices that the loader asked its dataset for, as Python literals, each ended by a newline:
  // "17\n", "'cat'\n", "(3, 4)\n". Not terminated.
  char text[kTensorsOfSamples * sizeof(TensorStats) - 8];
};
static_assert(sizeof(LoaderSamples) == kTensorsOfSamples * sizeof(TensorStats));
static_assert(std::is_trivially_copyable_v<LoaderSamples>);

}  // namespace nanwatch::wire
