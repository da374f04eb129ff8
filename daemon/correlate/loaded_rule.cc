// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/loaded_rule.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

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

bool IsOutsideModules(const Site* site, std::string_view op) {
  return site != nullptr && site->op() == op && site->layer().empty();
}

// How load_state_dict and broadcasts handle tensors; batches are rather stacked, or cast. What
// torch.load has made (set_) may be either: it counts where it was copied into what was there.
bool IsCarriedNameless(const StepClock& clock, const std::vector<ValueNode>& nodes, int index,
                       const Origin& origin) {
  const bool nameless =
      IsTarget(origin, wire::Target::kNone) || IsTarget(origin, wire::Target::kInputData);
  if (!origin.IsExternal() || !nameless || origin.site == nullptr) return false;
  if (!IsOfFirstIteration(clock, origin)) return false;
  if (IsOutsideModules(origin.site, "aten::set_")) {
    return std::any_of(nodes.begin(), nodes.end(), [index](const ValueNode& node) {
      return node.origin == index && IsOutsideModules(node.site, "aten::copy_");
    });
  }
  return IsOutsideModules(origin.site, "aten::copy_") ||
         IsOutsideModules(origin.site, "aten::cat") || IsOutsideModules(origin.site, "aten::clone");
}

}  // namespace

void TakeForLoaded(const StepClock& clock, const std::vector<Origin>& origins,
                   std::vector<ValueNode>& nodes, std::vector<ReachEvent>& events,
                   std::vector<Sending>& sendings) {
  const auto loaded = std::find_if(origins.begin(), origins.end(),
                                   [&](const Origin& origin) { return IsLoaded(clock, origin); });
  if (loaded == origins.end()) return;
  std::vector<bool> is_carried(origins.size());
  for (size_t i = 0; i < origins.size(); ++i) {
    is_carried[i] = origins[i].ticket <= loaded->ticket &&
                    IsCarriedNameless(clock, nodes, static_cast<int>(i), origins[i]);
  }
  const int first = static_cast<int>(loaded - origins.begin());
  const auto take = [&](int& origin) {
    if (origin >= 0 && is_carried[static_cast<size_t>(origin)]) origin = first;
  };
  for (ValueNode& node : nodes) take(node.origin);
  for (ReachEvent& event : events) take(event.origin);
  for (Sending& sending : sendings) take(sending.origin);
}

}  // namespace nanwatch
