// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/known_bad.h"

#include "shim/observe/events/source_list.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

BadEntry BadEntryOf(const PlainTensor& tensor, uint32_t step) {
  BadEntry entry;
  entry.storage = HoldWeakly(tensor.storage);
  entry.byte_begin = tensor.byte_begin;
  entry.byte_end = tensor.byte_end;
  entry.dense = tensor.IsDense();
  entry.born_step = step;
  return entry;
}

bool KnownBad::SourceOf(const PlainTensor& tensor, wire::Source* source, ValueRef* value) noexcept {
  BadEntry entry;
  if (!Find(tensor, &entry)) return false;
  *source = SourceFrom(entry);
  *value = entry.value;
  return true;
}

void KnownBad::Remember(const BadOutput* outputs, int count, const As& as) noexcept {
  for (int i = 0; i < count; ++i) {
    BadEntry entry = BadEntryOf(outputs[i].tensor, clock_.completed());
    entry.value = as.value;
    entry.site = as.site;
    entry.name = i == 0 ? as.written.name : 0;
    entry.target = i == 0 ? as.written.target : wire::Target::kNone;
    entry.born_range = as.in_optimizer ? clock_.range() : 0;
    entry.kinds = as.kinds;
    if (as.count_elements) CountBad(outputs[i].tensor.view, &entry);
    values_.Add(entry);
  }
  tracking_.Arm();
}

void KnownBad::RememberExternal(const PlainTensor& tensor, const External& as) noexcept {
  BadEntry entry = BadEntryOf(tensor, clock_.completed());
  entry.name = as.name;
  entry.target = as.target;
  entry.shared_file = as.shared_file;
  entry.writer_unseen = as.writer_unseen;
  CountBad(tensor.view, &entry);
  values_.Add(entry);
  tracking_.Arm();
}

void KnownBad::RememberRest(const PlainTensor& tensor, const BadEntry& known,
                            bool writer_unseen) noexcept {
  BadEntry rest = BadEntryOf(tensor, clock_.completed());
  rest.value = known.value;
  rest.site = known.site;
  rest.name = known.name;
  rest.target = known.target;
  rest.shared_file = known.shared_file;
  rest.writer_unseen = known.writer_unseen || writer_unseen;
  rest.born_range = known.born_range;
  CountBad(tensor.view, &rest);
  values_.Add(rest);
  tracking_.Arm();
}

}  // namespace nanwatch
