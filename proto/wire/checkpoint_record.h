// SPDX-License-Identifier: Apache-2.0
// What a checkpoint held when the program saved it. Written once the save has ended.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch::wire {

inline constexpr size_t kCheckpointNameBytes = 136;
inline constexpr size_t kCheckpointFileBytes = 240;

// Texts end with a zero byte. Of one that is too long the end is kept: it tells more than the
// beginning.
struct CheckpointRecord {
  enum Flag : uint32_t {
    kFailed = 1,   // the save has raised
    kOnGpu = 2,    // of the tensors that were not read, some lie on a GPU
    kLeftOut = 4,  // it held more tensors, or lay deeper, than is looked at
  };
  RecordHeader header;
  uint32_t read;    // tensors of floating point
  uint32_t bad;     // of these, hold NaN or Inf
  uint32_t unread;  // tensors of floating point that nobody looked into
  uint32_t flags;
  uint64_t bytes;  // of those that were read
  uint32_t kinds;  // kHasNan... of all that are bad
  uint32_t reserved;
  char first_bad[kCheckpointNameBytes];  // "model.fc.weight", the keys on the way to it; "" none
  char file[kCheckpointFileBytes];       // as the program gave it; "" it had no name
};
static_assert(sizeof(CheckpointRecord) == 64 + 32 + kCheckpointNameBytes + kCheckpointFileBytes);
static_assert(sizeof(CheckpointRecord) <= kRecordBytesMax);

}  // namespace nanwatch::wire
