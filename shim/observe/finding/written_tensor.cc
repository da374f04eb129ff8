// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/written_tensor.h"

#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

using wire::Phase;
using wire::Target;
using wire::ValueRecord;

// After a backward pass a leaf that requires a gradient is written in place without grad mode: that
// is an update.
bool IsUpdateByHand(Observer& observer, const Location& place) {
  return place.phase == Phase::kOther && observer.plain_update_due.load(std::memory_order_relaxed);
}

}  // namespace

Written WhatWasWritten(Observer& observer, const Frame& frame, const Location& place,
                       Emitter& emitter, const BadOutput& output) noexcept {
  Written written;
  const bool writes_existing = frame.op->in_place || (frame.op->families & kBatchNorm) != 0;
  if (!writes_existing) return written;
  if (frame.op->in_place) written.flags |= ValueRecord::kInPlace;
  const PythonNames& names = observer.python->names();
  // What a GPU has written, here or on its own side, is told of when the tensor may be gone.
  written.named = output.tensor.gpu >= 0 || output.tensor.view.counted != nullptr
                      ? names.FindByImpl(output.tensor.impl, output.tensor.storage)
                      : names.FindByImpl(output.tensor.impl);
  if (written.named == nullptr) {
    written.named = observer.python->names().FindByStorage(output.tensor.storage);
  }
  if (written.named != nullptr) {
    written.name = InternText(emitter, written.named->name);
    written.target = TargetOf(*written.named);
    written.flags |= written.target == Target::kParameter ? ValueRecord::kWroteParameter
                                                          : ValueRecord::kWroteBuffer;
  } else if (output.requires_grad && frame.op->in_place &&
             (place.phase == Phase::kOptimizer || IsUpdateByHand(observer, place))) {
    written.target = Target::kParameter;  // a leaf that no module holds
    written.flags |= ValueRecord::kWroteParameter;
  }
  return written;
}

void Remember(Observer& observer, const BadOutput* outputs, int count, ValueRef value,
              uint32_t site, const Written& written, bool in_optimizer,
              bool count_elements) noexcept {
  for (int i = 0; i < count; ++i) {
    BadEntry entry;
    entry.storage = HoldWeakly(outputs[i].tensor.storage);
    entry.byte_begin = outputs[i].tensor.byte_begin;
    entry.byte_end = outputs[i].tensor.byte_end;
    entry.dense = outputs[i].tensor.IsDense();
    entry.value = value;
    entry.site = site;
    entry.name = i == 0 ? written.name : 0;
    entry.target = i == 0 ? written.target : Target::kNone;
    entry.born_step = observer.steps.completed();
    entry.born_range = in_optimizer ? observer.steps.range() : 0;
    if (count_elements) CountBad(outputs[i].tensor.view, &entry);
    observer.bad_values.Add(entry);
  }
  observer.input_tracking.Arm();
}

}  // namespace nanwatch
