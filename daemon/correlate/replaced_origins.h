// SPDX-License-Identifier: Apache-2.0
// Rules that take one origin for another do so in all that names one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <vector>

#include "daemon/correlate/origin.h"
#include "daemon/correlate/reach_event.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/value_node.h"

namespace nanwatch {

// `instead`: of each origin the one that it is taken for, which may be itself.
inline void ReplaceOrigins(const std::vector<int>& instead, std::vector<ValueNode>& nodes,
                           std::vector<ReachEvent>& events, std::vector<Sending>& sendings) {
  const auto replace = [&](int& origin) {
    if (origin >= 0) origin = instead[static_cast<size_t>(origin)];
  };
  for (ValueNode& node : nodes) replace(node.origin);
  for (ReachEvent& event : events) replace(event.origin);
  for (Sending& sending : sendings) replace(sending.origin);
}

// For ReplaceOrigins: each is taken for the first before it that may be one (`may_be_first(origin)`)
// and that it belongs to (`belongs(first, origin)`), else for itself.
template <class MayBeFirst, class Belongs>
[[nodiscard]] std::vector<int> TakenForFirst(const std::vector<Origin>& origins,
                                             MayBeFirst may_be_first, Belongs belongs) {
  std::vector<int> instead(origins.size());
  std::iota(instead.begin(), instead.end(), 0);
  std::vector<int> firsts;
  std::copy_if(instead.begin(), instead.end(), std::back_inserter(firsts),
               [&](int i) { return may_be_first(origins[static_cast<size_t>(i)]); });
  if (firsts.empty()) return instead;
  for (int& origin : instead) {
    const Origin& later = origins[static_cast<size_t>(origin)];
    const auto found = std::find_if(firsts.begin(), firsts.end(), [&](int i) {
      const Origin& first = origins[static_cast<size_t>(i)];
      return first.ticket < later.ticket && belongs(first, later);
    });
    if (found != firsts.end()) origin = *found;
  }
  return instead;
}

[[nodiscard]] inline bool IsOfOneStep(const StepClock& clock, const Origin& a, const Origin& b) {
  return a.clocks != nullptr && b.clocks != nullptr &&
         clock.Read(*a.clocks).iteration_of_run == clock.Read(*b.clocks).iteration_of_run;
}

}  // namespace nanwatch
