// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/loaded_rule.h"

#include <algorithm>
#include <cstddef>

namespace nanwatch {
namespace {

bool IsTarget(const Origin& origin, wire::Target target) {
  return origin.target == static_cast<uint32_t>(target);
}

bool IsOfFirstIteration(const StepClock& clock, const Origin& origin) {
  return origin.clocks != nullptr && clock.Read(*origin.clocks).iteration_of_run <= 0;
}

bool IsLoaded(const StepClock& clock, const Origin& origin) {
  const bool lasting =
      IsTarget(origin, wire::Target::kParameter) || IsTarget(origin, wire::Target::kBuffer);
  return origin.IsExternal() && lasting && IsOfFirstIteration(clock, origin);
}

// How load_state_dict and broadcasts handle tensors; batches are rather stacked, or cast.
bool IsCarriedNameless(const StepClock& clock, const Origin& origin) {
  const bool nameless =
      IsTarget(origin, wire::Target::kNone) || IsTarget(origin, wire::Target::kInputData);
  if (!origin.IsExternal() || !nameless || origin.site == nullptr) return false;
  const Site& site = *origin.site;
  const bool carries =
      site.op() == "aten::copy_" || site.op() == "aten::cat" || site.op() == "aten::clone";
  return carries && site.layer().empty() && IsOfFirstIteration(clock, origin);
}

}  // namespace

void TakeForLoaded(const StepClock& clock, const std::vector<Origin>& origins,
                   std::vector<ValueNode>& nodes, std::vector<ReachEvent>& events,
                   std::vector<Sending>& sendings) {
  const auto loaded = std::find_if(origins.begin(), origins.end(),
                                   [&](const Origin& origin) { return IsLoaded(clock, origin); });
  if (loaded == origins.end()) return;
  const int first = static_cast<int>(loaded - origins.begin());
  const auto take = [&](int& origin) {
    if (origin < 0) return;
    const Origin& named = origins[static_cast<size_t>(origin)];
    if (named.ticket <= loaded->ticket && IsCarriedNameless(clock, named)) origin = first;
  };
  for (ValueNode& node : nodes) take(node.origin);
  for (ReachEvent& event : events) take(event.origin);
  for (Sending& sending : sendings) take(sending.origin);
}

}  // namespace nanwatch
