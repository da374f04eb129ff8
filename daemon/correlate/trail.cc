// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/trail.h"

#include <algorithm>
#include <map>
#include <string>

#include "daemon/correlate/wire_names.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

std::string NameAt(const TrailFact& trail, uint32_t place) {
  return place < static_cast<uint32_t>(trail.names_size()) ? trail.names(static_cast<int>(place))
                                                           : "";
}

TrailOp Describe(const TrailFact& trail, const TrailFact::Op& op, uint32_t iteration) {
  TrailOp out;
  out.set_op(NameAt(trail, op.op()));
  out.set_layer(NameAt(trail, op.layer()));
  out.set_phase(PhaseName(op.phase()));
  out.set_dtype(ElementTypeName(op.element_type()));
  out.set_largest(op.largest());
  out.set_at_least(op.known() == wire::TrailOp::kAtLeast);
  out.set_steps_before(iteration - std::min(iteration, op.iteration()));
  return out;
}

// Of the op's calls in one step the largest result.
void AddHistory(const TrailFact& trail, uint32_t iteration, Incident& incident) {
  const Finding& origin = incident.origin();
  std::map<uint32_t, const TrailFact::Op*> by_iteration;
  for (const TrailFact::Op& op : trail.ops()) {
    if (op.known() == wire::TrailOp::kNothing || NameAt(trail, op.op()) != origin.op() ||
        NameAt(trail, op.layer()) != origin.layer() || PhaseName(op.phase()) != origin.phase()) {
      continue;
    }
    const TrailFact::Op*& kept = by_iteration[op.iteration()];
    if (kept == nullptr || kept->largest() < op.largest()) kept = &op;
  }
  auto at = by_iteration.begin();
  if (by_iteration.size() > kHistoryMax) {
    std::advance(at, static_cast<ptrdiff_t>(by_iteration.size()) - kHistoryMax);
  }
  for (; at != by_iteration.end(); ++at) {
    *incident.add_history() = Describe(trail, *at->second, iteration);
  }
}

}  // namespace

void AddTrail(const TrailFact& trail, Incident& incident) {
  if (trail.ops().empty()) return;
  const uint32_t iteration = trail.ops(trail.ops_size() - 1).iteration();
  for (int i = std::max(0, trail.ops_size() - kTrailShownMax); i < trail.ops_size(); ++i) {
    const TrailFact::Op& op = trail.ops(i);
    if (op.known() == wire::TrailOp::kNothing) continue;
    *incident.add_trail() = Describe(trail, op, iteration);
  }
  AddHistory(trail, iteration, incident);
}

}  // namespace nanwatch
