// SPDX-License-Identifier: Apache-2.0
// One batch of level sampled with what the GPU has answered about it, while it is resolved
// (resolver_batches.cc, resolver_masks.cc).
#pragma once

#include <span>

#include "shim/device/batch_launch.h"
#include "shim/observe/gpu/op_note.h"
#include "shim/observe/gpu/resolver.h"

namespace nanwatch {

// Those of the op whose first note this is.
inline std::span<OpNote> NotesOfOp(BatchEvent& batch, uint32_t first) {
  uint32_t end = first + 1;
  while (end < batch.count && batch.notes[end].number == batch.notes[first].number) ++end;
  return {&batch.notes[first], end - first};
}

struct GpuResolver::BatchAnswer {
  BatchEvent* batch;  // null: of a mask that is resolved later
  device::BatchResult result;
  uint32_t entry_count;  // of the launch, before the others

  struct Read {
    uint8_t kinds = 0;
    bool in_full = false;
    const device::TensorCounts* counts = nullptr;  // null: the kinds alone are known
  };
  [[nodiscard]] Read Of(const OpNote& note, bool is_other) const {
    if (note.entry < 0) return {note.kinds_read_later, false, nullptr};
    const uint32_t at = static_cast<uint32_t>(note.entry) + (is_other ? entry_count : 0);
    return {result.KindsOf(at), result.WasReadInFull(at), result.CountsOf(at)};
  }
};

}  // namespace nanwatch
