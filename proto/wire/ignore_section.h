// SPDX-License-Identifier: Apache-2.0
// What the user said is expected (NANWATCH_IGNORE), as the process was started with it. The job
// carries the text and does not read it: which finding a rule excuses is for the reader to say.
//
// It lies in the section kBlobs, which segment.h reserved for what comes in one piece: readers of
// before take no notice. Written once, before the file gets its final name; no atomics. The reader
// copies it whole and believes neither `bytes` nor the text.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nanwatch::wire {

inline constexpr size_t kIgnoreBytesMax = 16 * 1024 - 16;

struct IgnoreSection {
  enum Flag : uint32_t {
    kCut = 1,         // there was more text; what stands here ends with a whole rule
    kUnreadable = 2,  // the text is the name of the file that was to be read
  };
  uint32_t bytes;
  uint32_t flags;
  int32_t error;  // errno, with kUnreadable
  uint32_t reserved;
  char text[kIgnoreBytesMax];
};
static_assert(sizeof(IgnoreSection) == 16 * 1024);

}  // namespace nanwatch::wire
