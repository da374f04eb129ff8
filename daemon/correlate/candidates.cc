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

// Python has read a number of this incident.
bool WasReadAsNumber(const IncidentDraft& draft) {
  const IncidentKey key = KeyOf(*draft.origin);
  for (const Record& record : draft.lineage->facts().records()) {
    if (!record.has_escape()) continue;
    const uint64_t value = record.escape().source().value();
    for (const ValueNode& node : draft.lineage->nodes()) {
      if (node.ticket != value || node.origin < 0) continue;
      if (KeyOf(draft.lineage->origins()[static_cast<size_t>(node.origin)]) == key) return true;
    }
  }
  return false;
}

bool MayHaveMade(const IncidentDraft& maker, const IncidentDraft& draft) {
  const Origin& made = *maker.origin;
  const Origin& came_in = *draft.origin;
  if (maker.anomalous || !MadeSomething(made) || (made.kinds & came_in.kinds) == 0 ||
      made.record->time_ns() > came_in.record->time_ns()) {
    return false;
  }
  if (maker.lineage != draft.lineage) return IsOnOneHost(*maker.lineage, *draft.lineage);
  return WasReadAsNumber(maker);
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
