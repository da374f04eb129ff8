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

namespace nanwatch {

inline constexpr size_t kSampleRun = 16;

// Copies the sample of `count` elements of `width` bytes each to `to`, which has room for the
// smaller of `count` and `elements_max`, a multiple of kSampleRun. Gives how many it copied.
size_t CopySample(const void* data, size_t count, size_t width, size_t elements_max,
                  unsigned char* to) noexcept;

}  // namespace nanwatch
