// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/candidates.h"

#include <algorithm>

#include "daemon/correlate/finding.h"

namespace nanwatch {
namespace {

using wire::FindingClass;

bool MadeSomething(const Origin& origin) {
  return origin.strength == Origin::Strength::kMade && origin.record != nullptr &&
         (origin.finding_class == FindingClass::kProduce ||
          origin.finding_class == FindingClass::kInfToNan);
}

bool IsOnOneHost(const Lineage& a, const Lineage& b) {
  return a.facts().run().boot_id() == b.facts().run().boot_id();
}

// It harmed a training by itself; a number that was only read has not yet.
bool IsReportedByItself(const IncidentDraft& draft) {
  using wire::Reach;
  return std::any_of(draft.reach.begin(), draft.reach.end(), [](Reach reach) {
    return reach != Reach::kActivation && reach != Reach::kMetric;
  });
}

bool MayHaveMade(const IncidentDraft& maker, const IncidentDraft& draft) {
  const Origin& made = *maker.origin;
  const Origin& came_in = *draft.origin;
  if (IsReportedByItself(maker) || !MadeSomething(made) || (made.kinds & came_in.kinds) == 0 ||
      made.record->time_ns() > came_in.record->time_ns()) {
    return false;
  }
  return maker.lineage == draft.lineage || IsOnOneHost(*maker.lineage, *draft.lineage);
}

}  // namespace

void AddCandidates(const IncidentDraft& draft, const Drafts& drafts, Incident& incident) {
  Finding& origin = *incident.mutable_origin();
  if (!draft.anomalous || !draft.origin->IsExternal() || draft.origin->record == nullptr ||
      origin.kind() != "input_data") {
    return;
  }
  std::vector<const IncidentDraft*> makers;
  for (const auto& [key, maker] : drafts) {
    if (&maker != &draft && MayHaveMade(maker, draft)) makers.push_back(&maker);
  }
  if (makers.empty()) return;
  std::stable_sort(makers.begin(), makers.end(), [](const auto* a, const auto* b) {
    return a->origin->record->time_ns() > b->origin->record->time_ns();
  });
  if (makers.size() > kCandidatesMax) makers.resize(kCandidatesMax);
  for (const IncidentDraft* maker : makers) {
    const Finding made = DescribeOrigin(*maker->lineage, *maker->origin);
    PossibleMaker& candidate = *origin.add_candidates();
    candidate.set_op(made.op());
    candidate.set_layer(made.layer());
    candidate.set_source(made.source());
    candidate.set_step(made.step());
    candidate.set_run(made.run());
    candidate.set_pid(maker->lineage->facts().run().pid());
  }
  origin.set_exact(false);
  origin.add_unseen("candidates");
}

}  // namespace nanwatch
