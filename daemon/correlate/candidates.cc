// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/candidates.h"

#include <algorithm>
#include <map>

#include "daemon/correlate/origin_finding.h"
#include "daemon/correlate/wire_facts.h"

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

// What was computed of an Inf elsewhere may be NaN: numpy takes the mean of a column away.
bool MayBecome(uint32_t made, uint32_t came_in) {
  return (made & came_in) != 0 || (came_in & wire::kHasNan) != 0;
}

// By time, host and kinds.
bool Fits(const IncidentDraft& maker, const IncidentDraft& draft) {
  const Origin& made = *maker.origin;
  const Origin& came_in = *draft.origin;
  if (!MadeSomething(made) || !MayBecome(made.kinds, came_in.kinds) ||
      made.record->time_ns() > came_in.record->time_ns()) {
    return false;
  }
  return maker.lineage == draft.lineage || IsOnOneHost(*maker.lineage, *draft.lineage);
}

bool MayHaveMade(const IncidentDraft& maker, const IncidentDraft& draft) {
  return !IsReportedByItself(maker) && Fits(maker, draft);
}

using Tensors = google::protobuf::RepeatedPtrField<RecordTensor>;

const RecordTensor* FirstBad(const Tensors& tensors) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [](const RecordTensor& tensor) { return BadIn(tensor) > 0; });
  return found == tensors.end() ? nullptr : &*found;
}

// What it read, or else what it made of that.
const RecordTensor* WhatCameIn(const Origin& origin) {
  if (!origin.record->has_value()) return nullptr;
  const RecordTensor* input = FirstBad(origin.record->value().inputs());
  return input != nullptr ? input : FirstBad(origin.record->value().outputs());
}

bool HasSameShape(const Origin& made, const Origin& came_in) {
  if (!made.record->has_value()) return false;
  const RecordTensor* const a = FirstBad(made.record->value().outputs());
  const RecordTensor* const b = WhatCameIn(came_in);
  return a != nullptr && b != nullptr && a->nan() == b->nan() && a->pos_inf() == b->pos_inf() &&
         a->neg_inf() == b->neg_inf() &&
         std::equal(a->shape().begin(), a->shape().end(), b->shape().begin(), b->shape().end());
}

// Null: there is none, or there are several.
const Drafts::value_type* OnlyMaker(const Drafts& drafts, const IncidentDraft& draft) {
  const Drafts::value_type* only = nullptr;
  for (const Drafts::value_type& entry : drafts) {
    const IncidentDraft& maker = entry.second;
    if (&maker == &draft || maker.lineage == draft.lineage || !Fits(maker, draft) ||
        !HasSameShape(*maker.origin, *draft.origin)) {
      continue;
    }
    if (only != nullptr) return nullptr;
    only = &entry;
  }
  return only;
}

}  // namespace

void FoldCopies(Drafts& drafts) {
  std::map<IncidentKey, IncidentKey> heads;  // by maker
  for (auto it = drafts.begin(); it != drafts.end();) {
    const IncidentDraft& draft = it->second;
    const bool may_be_copy = draft.anomalous && ReachedMetricsAlone(draft) &&
                             draft.origin->IsExternal() && draft.origin->record != nullptr &&
                             OriginKind(*draft.origin) == "input_data";
    const Drafts::value_type* const maker = may_be_copy ? OnlyMaker(drafts, draft) : nullptr;
    auto into = drafts.end();
    if (maker != nullptr && maker->second.anomalous) {
      into = drafts.find(maker->first);
    } else if (maker != nullptr) {
      into = drafts.find(heads.try_emplace(maker->first, it->first).first->second);
    }
    if (into == drafts.end() || into == it) {
      ++it;
      continue;
    }
    into->second.Merge(draft);
    it = drafts.erase(it);
  }
}

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
