// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/number_rule.h"

#include <cstddef>

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
  const std::vector<int> instead =
      TakenForFirst(origins, &WasNotAsked, [&clock](const Origin& first, const Origin& number) {
        return number.finding_class == FindingClass::kScalar && ComputesInLine(number) &&
               first.site->op() == number.site->op() &&
               first.site->source() == number.site->source() && IsOfOneStep(clock, first, number);
      });
  for (size_t i = 0; i < origins.size(); ++i) {
    const auto index = static_cast<size_t>(instead[i]);
    if (index != i) origins[index].finding_class = FindingClass::kScalar;
  }
  ReplaceOrigins(instead, nodes, events, sendings);
}

}  // namespace nanwatch
