// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/node_rule.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "daemon/correlate/replaced_origins.h"
#include "daemon/correlate/wire_facts.h"

namespace nanwatch {
namespace {

bool IsOfPass(const Origin& origin) {
  return origin.site != nullptr && origin.record != nullptr && origin.record->has_value() &&
         origin.record->value().pass() != 0;
}

// Nobody had read what it was given, and it was given nothing that was known to be bad.
bool IsMadeOfUnread(const Origin& origin) {
  return origin.finding_class == wire::FindingClass::kProduce &&
         Has(origin.unseen, wire::ValueRecord::kUnseenInputs) && IsOfPass(origin) &&
         !origin.site->node().empty() && origin.record->value().sources().empty();
}

// The engine sums a node's result to its parameter's shape (a bias) when the node has ended.
bool IsOfNode(const Origin& a, const Origin& b) {
  const bool same_node = b.site->node().empty() || a.site->node() == b.site->node();
  return same_node && a.site->layer() == b.site->layer() &&
         a.record->value().pass() == b.record->value().pass() &&
         a.record->thread() == b.record->thread();
}

}  // namespace

void TakeForItsGradient(const std::vector<Origin>& origins, std::vector<ValueNode>& nodes,
                        std::vector<ReachEvent>& events, std::vector<Sending>& sendings) {
  std::vector<int> instead(origins.size());
  std::iota(instead.begin(), instead.end(), 0);
  for (size_t i = 0; i < origins.size(); ++i) {
    if (!IsMadeOfUnread(origins[i])) continue;
    const auto came_in = std::find_if(origins.begin(), origins.end(), [&](const Origin& other) {
      return other.ticket > origins[i].ticket && other.CameInNameless() && IsOfPass(other) &&
             IsOfNode(origins[i], other);
    });
    if (came_in != origins.end()) instead[i] = static_cast<int>(came_in - origins.begin());
  }
  ReplaceOrigins(instead, nodes, events, sendings);
}

}  // namespace nanwatch
