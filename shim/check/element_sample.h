// SPDX-License-Identifier: Apache-2.0
// Which elements of a tensor stand for all of them, where reading all would cost too much.
//
// A tensor of at most `elements_max` is read whole. Of a larger one runs of 16 neighbours (a cache
// line of float32) are taken, one from each of elements_max / 16 equal parts of its memory, at a
// place in its part that depends on the part's number and the tensor's size alone: the same
// elements at every look. Not at a fixed distance: that would often be a multiple of the row's
// length, and all of the sample would lie in a few columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/check/float_bits.h"

namespace nanwatch {

inline constexpr size_t kSampleRun = 16;

// The place of element `i` of the sample of `count` elements that has `sampled`. On a GPU, too
// (device/compare_list.h).
NANWATCH_BITS constexpr uint64_t SampledIndex(uint64_t count, uint32_t sampled,
                                              uint32_t i) noexcept {
  if (count <= sampled) return i;
  const uint64_t part = count / (sampled / kSampleRun);  // at least kSampleRun
  const uint64_t run = i / kSampleRun;
  // Multiples of the golden ratio: spread evenly, and in step with no row length.
  const uint64_t place = (run * 0x9e3779b97f4a7c15u >> 32) % (part - kSampleRun + 1);
  return run * part + place + i % kSampleRun;
}

// Copies the sample of `count` elements of `width` bytes each to `to`, which has room for the
// smaller of `count` and `elements_max`, a multiple of kSampleRun. Gives how many it copied.
size_t CopySample(const void* data, size_t count, size_t width, size_t elements_max,
                  unsigned char* to) noexcept;

}  // namespace nanwatch
