// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/written_tensor.h"

#include "shim/observe/events/pass_leaves.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
using wire::Phase;
using wire::Target;
using wire::ValueRecord;

bool IsUpdateOfLeaf(const Location& place, const BadOutput& output, const StepMarks& marks,
                    PassLeaves& leaves) noexcept {
  if (place.phase == Phase::kOptimizer) return output.requires_grad;
  const bool update_due = marks.plain_update_due.load(std::memory_order_relaxed);
  return (output.requires_grad && place.phase == Phase::kOther && update_due) ||
         (place.phase != Phase::kBackward && leaves.Has(output.tensor.storage));
}

Written WhatWasWritten(const PythonNames& names, const Frame& frame, const Location& place,
                       Emitter& emitter, const BadOutput& output, const StepMarks& marks,
                       PassLeaves& leaves) noexcept {
  Written written;
  const bool writes_existing = frame.op->in_place || (frame.op->families & kBatchNorm) != 0;
  if (!writes_existing) return written;
  if (frame.op->in_place) written.flags |= ValueRecord::kInPlace;
  // What a GPU has written, here or on its own side, is told of when the tensor may be gone.
  written.named = output.tensor.gpu >= 0 || output.tensor.view.counted != nullptr
                      ? names.FindByImpl(output.tensor.impl, output.tensor.storage)
                      : names.FindByImpl(output.tensor.impl);
  if (written.named == nullptr) {
    written.named = names.FindByStorage(output.tensor.storage);
  }
  if (written.named != nullptr) {
    written.name = InternText(emitter, written.named->name);
    written.target = TargetOf(*written.named);
    written.flags |= written.target == Target::kParameter ? ValueRecord::kWroteParameter
                                                          : ValueRecord::kWroteBuffer;
  } else if (frame.op->in_place && IsUpdateOfLeaf(place, output, marks, leaves)) {
    written.target = Target::kParameter;  // a leaf that no module holds
    written.flags |= ValueRecord::kWroteParameter;
  }
  return written;
}

}  // namespace nanwatch
