#include "daemon/correlate/death_rule.h"

#include <set>

#include "daemon/correlate/op_traits.h"

namespace nanwatch {
namespace {

using wire::ValueRecord;

bool EndedWithError(const RunState& state) {
  return state.has_exit_code() && state.exit_code() != 0 && !state.has_signal();
}

// What some op made finite again, but for comparisons.
struct Killed {
  std::set<uint64_t> values;
  std::set<uint32_t> sites;
};

Killed WhatWasKilled(const Lineage& run) {
  Killed killed;
  for (const Record& record : run.facts().records()) {
    if (!record.has_kill()) continue;
    const Site* by = run.FindSite(record.kill().site());
    if (by == nullptr || Compares(by->op())) continue;
    for (const RecordSource& source : record.kill().sources()) {
      killed.values.insert(source.value());
      if (source.site() != 0) killed.sites.insert(source.site());
    }
  }
  return killed;
}

std::set<uint64_t> WhatWasPassedOn(const Lineage& run) {
  std::set<uint64_t> values;
  for (const ValueNode& node : run.nodes()) {
    if (node.record == nullptr) continue;
    for (const RecordSource& source : node.record->value().sources()) values.insert(source.value());
  }
  return values;
}

bool IsForGradient(const ValueNode& node) {
  return (node.record->value().flags() & ValueRecord::kNeedsGradient) != 0 ||
         node.site->phase() == static_cast<uint32_t>(wire::Phase::kBackward);
}

bool IsInLastIteration(const Lineage& run, const ValueNode& node) {
  return run.clock().Read(*node.clocks).iteration_of_run ==
         run.clock().Read(run.facts().state().clocks()).iteration_of_run;
}

}  // namespace

std::vector<int> OriginsAtDeath(const Lineage& run) {
  if (!EndedWithError(run.facts().state())) return {};
  const Killed killed = WhatWasKilled(run);
  const std::set<uint64_t> passed_on = WhatWasPassedOn(run);
  std::set<int> origins;
  for (const ValueNode& node : run.nodes()) {
    if (node.record == nullptr || node.site == nullptr || node.origin < 0) continue;
    const bool last = !passed_on.contains(node.ticket) &&
                      !killed.values.contains(node.ticket) &&
                      !killed.sites.contains(node.site->id());
    if (last && node.kinds != wire::kHasNegInf && IsForGradient(node) &&
        IsInLastIteration(run, node)) {
      origins.insert(node.origin);
    }
  }
  return {origins.begin(), origins.end()};
}

}  // namespace nanwatch
