// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/death_rule.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "daemon/correlate/op_traits.h"
#include "daemon/correlate/run_end.h"
#include "daemon/correlate/wire_facts.h"
#include "proto/wire/escape_flags.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

using wire::ValueRecord;

// Makes nothing of the values that the job goes on with: a check, or how torch prints a tensor, as
// it does for the message of an error about it.
bool OnlyLooks(const std::string& op) { return Compares(op) || op == "aten::masked_select"; }

// What some op made finite again, but for those.
struct Killed {
  std::set<uint64_t> values;
  std::set<uint32_t> sites;
};

Killed WhatWasKilled(const Lineage& run) {
  Killed killed;
  for (const Record& record : run.facts().records()) {
    if (!record.has_kill()) continue;
    const Site* by = run.FindSite(record.kill().site());
    if (by == nullptr || OnlyLooks(by->op())) continue;
    for (const RecordSource& source : record.kill().sources()) {
      killed.values.insert(source.value());
      if (source.site() != 0) killed.sites.insert(source.site());
    }
  }
  return killed;
}

// Something was made of it, or would have been, that the training goes by.
bool IsForGradient(const ValueNode& node) {
  if (node.record == nullptr || node.site == nullptr) return false;
  return (node.record->value().flags() & ValueRecord::kNeedsGradient) != 0 ||
         IsIn(node.site, wire::Phase::kBackward);
}

std::set<uint64_t> WhatWasPassedOn(const Lineage& run) {
  std::set<uint64_t> values;
  for (const ValueNode& node : run.nodes()) {
    if (!IsForGradient(node)) continue;
    for (const RecordSource& source : node.record->value().sources()) values.insert(source.value());
  }
  return values;
}

// A script that trains nothing: no step, no backward pass.
bool TrainsNothing(const Lineage& run) {
  return run.clock().Read(run.facts().state().clocks()).source == "none";
}

// The values that did not come in: what came in bad may be a missing value.
std::set<uint64_t> OwnValues(const Lineage& run) {
  std::set<uint64_t> values;
  for (const ValueNode& node : run.nodes()) {
    if (node.origin < 0) continue;
    const Origin& origin = run.origins()[static_cast<size_t>(node.origin)];
    if (!origin.IsExternal() && !origin.IsReceived()) values.insert(node.ticket);
  }
  return values;
}

// As a result: among many numbers a NaN may be a missing value.
bool WasReadAlone(const Record& record) {
  return record.has_escape() && std::isnan(record.escape().value()) &&
         !Has(record.escape().flags(), wire::kReadWithOthers);
}

// What a check looked at last, as a distribution does with its arguments and an assertion with a
// number that it read: no value came after, and nothing else was done with a bad one. Where the
// error spoke of it, an op may also have refused the last value itself (multinomial).
std::set<uint64_t> WhatWasMetLast(const Lineage& run, bool error_names_it) {
  const std::set<uint64_t> own = OwnValues(run);
  std::set<uint64_t> checked;
  for (const Record* record : InTicketOrder(run.facts())) {
    if (record->has_value()) {
      checked.clear();
      if (error_names_it && own.contains(record->ticket())) checked.insert(record->ticket());
    }
    if (WasReadAlone(*record)) {
      const uint64_t value = record->escape().source().value();
      if (own.contains(value)) checked.insert(value);
    }
    if (!record->has_kill()) continue;
    const Site* by = run.FindSite(record->kill().site());
    if (by == nullptr || !OnlyLooks(by->op())) {
      checked.clear();
      continue;
    }
    for (const RecordSource& source : record->kill().sources()) checked.insert(source.value());
  }
  return checked;
}

bool IsInLastIteration(const Lineage& run, const ValueNode& node) {
  return run.clock().Read(*node.clocks).iteration_of_run ==
         run.clock().Read(run.facts().state().clocks()).iteration_of_run;
}

std::vector<int> OriginsMetLast(const Lineage& run) {
  const Killed killed = WhatWasKilled(run);
  const std::set<uint64_t> passed_on = WhatWasPassedOn(run);
  std::set<uint64_t> checked;
  const bool error_names_it = EndedByBadValue(run.facts());
  if (TrainsNothing(run) || error_names_it) checked = WhatWasMetLast(run, error_names_it);
  std::set<int> origins;
  for (const ValueNode& node : run.nodes()) {
    const bool counts =
        IsForGradient(node) || (checked.contains(node.ticket) && node.site != nullptr);
    if (!counts || node.origin < 0) continue;
    const bool last = !passed_on.contains(node.ticket) && !killed.values.contains(node.ticket) &&
                      !killed.sites.contains(node.site->id());
    if (last && node.kinds != wire::kHasNegInf && IsInLastIteration(run, node)) {
      origins.insert(node.origin);
    }
  }
  return {origins.begin(), origins.end()};
}

bool RanAtSampled(const RunFacts& facts) {
  return facts.run().level() == static_cast<uint32_t>(wire::Level::kSampled) ||
         RanAt(facts.state(), wire::Level::kSampled);
}

// By an error that does not speak of bad values. `followed`: whether what became of them was seen.
std::vector<int> MetAtDeath(const Lineage& run, bool followed) {
  if (!EndedWithError(run.facts())) return {};
  std::vector<int> origins = OriginsMetLast(run);
  const bool in_sight = EndedByBadValue(run.facts()) || !RanAtSampled(run.facts());
  std::erase_if(origins, [&](int index) {
    const bool is_followed = in_sight || run.origins()[static_cast<size_t>(index)].exact;
    return is_followed != followed;
  });
  return origins;
}

bool MayHaveRuined(const Lineage& run, const std::vector<int>& origins) {
  return std::any_of(origins.begin(), origins.end(), [&run](int index) {
    const Origin& origin = run.origins()[static_cast<size_t>(index)];
    return !origin.IsMask() && origin.expected_by == nullptr;
  });
}

}  // namespace

std::vector<int> OriginsAtDeath(const Lineage& run) { return MetAtDeath(run, true); }

bool DiedUnfollowed(const Lineage& run) { return MayHaveRuined(run, MetAtDeath(run, false)); }

bool WasKilledInBadStep(const Lineage& run) {
  return WasKilled(run.facts().state()) && MayHaveRuined(run, OriginsMetLast(run));
}

}  // namespace nanwatch
