// SPDX-License-Identifier: Apache-2.0
// Rules that take one origin for another do so in all that names one.
#pragma once

#include <cstddef>
#include <vector>

#include "daemon/correlate/reach_event.h"
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

}  // namespace nanwatch
