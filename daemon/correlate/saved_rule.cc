// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/saved_rule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "daemon/correlate/replaced_origins.h"
#include "daemon/correlate/wire_facts.h"
#include "proto/wire/record.h"

namespace nanwatch {
namespace {

using Tensors = google::protobuf::RepeatedPtrField<RecordTensor>;

uint64_t BadIn(const RecordTensor& tensor) {
  return tensor.nan() + tensor.pos_inf() + tensor.neg_inf();
}

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

bool IsOfOneStep(const StepClock& clock, const Origin& a, const Origin& b) {
  return a.clocks != nullptr && b.clocks != nullptr &&
         clock.Read(*a.clocks).iteration_of_run == clock.Read(*b.clocks).iteration_of_run;
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
  std::vector<int> instead(origins.size());
  std::iota(instead.begin(), instead.end(), 0);
  bool found = false;
  for (size_t i = 0; i < origins.size(); ++i) {
    const Tensors* backward = InputsOf(origins[i], wire::Phase::kBackward);
    if (backward == nullptr) continue;
    const auto first = std::find_if(origins.begin(), origins.end(), [&](const Origin& origin) {
      const Tensors* forward = InputsOf(origin, wire::Phase::kForward);
      return forward != nullptr && origin.ticket < origins[i].ticket &&
             IsOfOneStep(clock, origin, origins[i]) && ReadTheSame(*forward, *backward);
    });
    if (first == origins.end()) continue;
    instead[i] = static_cast<int>(first - origins.begin());
    found = true;
  }
  if (found) ReplaceOrigins(instead, nodes, events, sendings);
}

}  // namespace nanwatch
