// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/saved_rule.h"

#include <algorithm>

#include "daemon/correlate/replaced_origins.h"
#include "daemon/correlate/wire_facts.h"
#include "proto/wire/record.h"

namespace nanwatch {
namespace {

using Tensors = google::protobuf::RepeatedPtrField<RecordTensor>;

// The same values, as far as their statistics tell; as rows or as columns. Of a few numbers that are
// all alike they tell nothing.
bool HoldsTheSame(const RecordTensor& a, const RecordTensor& b) {
  return a.finite_min() < a.finite_max() && a.element_type() == b.element_type() &&
         a.numel() == b.numel() && a.nan() == b.nan() && a.pos_inf() == b.pos_inf() &&
         a.neg_inf() == b.neg_inf() && a.finite_min() == b.finite_min() &&
         a.finite_max() == b.finite_max() && a.finite_mean() == b.finite_mean();
}

const Tensors* InputsOf(const Origin& origin, wire::Phase phase) {
  const bool has_inputs = origin.CameInNameless() && IsIn(origin.site, phase) &&
                          origin.record != nullptr && origin.record->has_value();
  return has_inputs ? &origin.record->value().inputs() : nullptr;
}

bool ReadTheSame(const Tensors& forward, const Tensors& backward) {
  return std::any_of(backward.begin(), backward.end(), [&](const RecordTensor& read) {
    return BadIn(read) != 0 &&
           std::any_of(forward.begin(), forward.end(),
                       [&](const RecordTensor& before) { return HoldsTheSame(read, before); });
  });
}

}  // namespace

void TakeForSaved(const StepClock& clock, const std::vector<Origin>& origins,
                  std::vector<ValueNode>& nodes, std::vector<ReachEvent>& events,
                  std::vector<Sending>& sendings) {
  const auto was_read = [](const Origin& origin) {
    return InputsOf(origin, wire::Phase::kForward) != nullptr;
  };
  const auto belongs = [&clock](const Origin& first, const Origin& origin) {
    const Tensors* backward = InputsOf(origin, wire::Phase::kBackward);
    return backward != nullptr && IsOfOneStep(clock, first, origin) &&
           ReadTheSame(*InputsOf(first, wire::Phase::kForward), *backward);
  };
  ReplaceOrigins(TakenForFirst(origins, was_read, belongs), nodes, events, sendings);
}

}  // namespace nanwatch
