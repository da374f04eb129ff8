// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/number_rule.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "daemon/correlate/op_traits.h"
#include "daemon/correlate/replaced_origins.h"
#include "daemon/correlate/wire_facts.h"

namespace nanwatch {
namespace {

using wire::FindingClass;

bool ComputesInLine(const Origin& origin) {
  return origin.site != nullptr && origin.clocks != nullptr && !origin.site->source().empty() &&
         ComputesWithNumber(origin.site->op());
}

bool WasNotAsked(const Origin& origin) {
  return origin.finding_class == FindingClass::kProduce &&
         Has(origin.unseen, wire::ValueRecord::kUnseenInputs) && ComputesInLine(origin);
}

}  // namespace

void TakeForNumber(const StepClock& clock, std::vector<Origin>& origins,
                   std::vector<ValueNode>& nodes, std::vector<ReachEvent>& events,
                   std::vector<Sending>& sendings) {
  std::vector<int> instead(origins.size());
  std::iota(instead.begin(), instead.end(), 0);
  bool found = false;
  for (size_t i = 0; i < origins.size(); ++i) {
    const Origin& number = origins[i];
    if (number.finding_class != FindingClass::kScalar || !ComputesInLine(number)) continue;
    const auto first = std::find_if(origins.begin(), origins.end(), [&](const Origin& origin) {
      return WasNotAsked(origin) && origin.ticket < number.ticket &&
             origin.site->op() == number.site->op() &&
             origin.site->source() == number.site->source() &&
             clock.Read(*origin.clocks).iteration_of_run ==
                 clock.Read(*number.clocks).iteration_of_run;
    });
    if (first == origins.end()) continue;
    instead[i] = static_cast<int>(first - origins.begin());
    found = true;
  }
  if (!found) return;
  for (size_t i = 0; i < origins.size(); ++i) {
    const auto index = static_cast<size_t>(instead[i]);
    if (index != i) origins[index].finding_class = FindingClass::kScalar;
  }
  ReplaceOrigins(instead, nodes, events, sendings);
}

}  // namespace nanwatch
