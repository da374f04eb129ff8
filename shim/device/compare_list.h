// SPDX-License-Identifier: Apache-2.0
// The kernel that says what an update has changed (measure_launch.h), as functions for a GPU and
// for a CPU, as in check_kernel.h: each block compares the sample of one tensor after the other
// with what it was at the look before, and keeps what it is now in its place. So the launch where a
// step begins and the one where it ends are the same.
//
// The sample is that of check/element_sample.h, kept as doubles. At most 4,096 elements of each
// tensor are read: 8 for each thread, in runs of a cache line or half of one.
#pragma once

#include <cstdint>

#include "shim/check/element_sample.h"
#include "shim/device/measure_list.h"

namespace nanwatch::device {

template <class Memory>
NANWATCH_BITS void CompareEntry(MeasureState& block, uint32_t index, uint32_t thread) noexcept {
  const ListEntry& entry = block.list.entries[index];
  const ListEntry& sample = block.list.entries[block.list.head.output_count + index];
  const auto type = static_cast<wire::ElementType>(TypeOf(entry));
  const uint64_t count = NumelOf(entry);
  const auto sampled = static_cast<uint32_t>(NumelOf(sample));
  Seen seen = {0, 0, 0, 0};
  if (IsMeasured(TypeOf(entry))) {
    const uint32_t bytes = PartBytesOf(type);
    NANWATCH_NO_UNROLL
    for (uint32_t i = thread; i < sampled; i += kThreadsPerBlock) {
      const uint64_t address = entry.data + SampledIndex(count, sampled, i) * bytes;
      const double now = SummedPart<Memory>(type, LoadPartOf<Memory>(bytes, address));
      double* const kept = reinterpret_cast<double*>(sample.data) + i;
      const double before = *kept;
      *kept = now;
      seen.sum += before * before;
      seen.squares += (now - before) * (now - before);
    }
  }
  block.sum[thread] = seen.sum;
  block.squares[thread] = seen.squares;
  block.largest[thread] = block.zeros[thread] = 0;
}

// All that one block does once the launch is copied.
template <class Memory, class Team>
NANWATCH_BITS void CompareListBlock(MeasureState& block, Place place, Team& team) noexcept {
  NANWATCH_NO_UNROLL
  for (uint32_t i = place.block; i < block.list.head.output_count; i += place.blocks) {
    team.Each([&](uint32_t thread, Tally&) { CompareEntry<Memory>(block, i, thread); });
    AddUpThreads(block, team);
    team.Each([&](uint32_t thread, Tally&) {
      if (thread == 0) AddToTotals<Memory>(block, i);
    });
  }
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0) TellMeasures<Memory>(block, place);
  });
}

}  // namespace nanwatch::device
