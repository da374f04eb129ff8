// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/follow_rule.h"

#include <algorithm>

#include "daemon/correlate/wire_facts.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

constexpr auto kFunctorch = static_cast<int>(wire::Unchecked::kFunctorch);

bool UsedTransforms(const RunState& state) {
  return state.unchecked_size() > kFunctorch && state.unchecked(kFunctorch) > 0;
}

}  // namespace

bool EndedUnfollowed(const Lineage& run) {
  const RunState& state = run.facts().state();
  const bool canary = RanAt(state, wire::Level::kCanary);
  const bool transforms = UsedTransforms(state);
  if (!canary && !transforms) return false;
  const uint64_t updates = UpdatesIn(state.clocks());
  return std::any_of(run.origins().begin(), run.origins().end(), [&](const Origin& origin) {
    const bool is_met = origin.strength == Origin::Strength::kUnseen;
    if (origin.site == nullptr || origin.IsMask() || origin.expected_by != nullptr ||
        (origin.kinds & ~uint32_t{wire::kHasNegInf}) == 0 || !(transforms || is_met)) {
      return false;
    }
    const uint64_t met = origin.clocks != nullptr ? UpdatesIn(*origin.clocks) : 0;
    return std::max(met, UpdatesIn(origin.site->last_clocks())) >= updates;
  });
}

}  // namespace nanwatch
