// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/incident.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "daemon/correlate/chain.h"
#include "daemon/correlate/death_rule.h"
#include "daemon/correlate/kernels.h"
#include "daemon/correlate/origin_finding.h"
#include "daemon/correlate/trail.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/ingest/run_batch.h"

namespace nanwatch {
namespace {

using wire::Reach;

IncidentDraft& DraftOf(Drafts& drafts, const Lineage& lineage, int origin) {
  const Origin& found = lineage.origins()[static_cast<size_t>(origin)];
  IncidentKey key = KeyOf(found);
  // By the same op, ranks may receive from different senders; rank_folding.h joins the rest again.
  if (found.IsReceived()) key += "\n" + RunId(lineage.facts().run());
  IncidentDraft& draft = drafts[key];
  draft.ranks.insert(lineage.facts().run().rank());
  if (draft.origin == nullptr) {
    draft.lineage = &lineage;
    draft.origin = &found;
  }
  return draft;
}

int64_t StepAt(const Lineage& lineage, const Clocks* clocks) {
  return clocks == nullptr ? -1 : lineage.clock().Read(*clocks).step;
}

int64_t MomentOf(const Lineage& lineage, const Clocks* clocks) {
  return clocks == nullptr ? -1 : lineage.clock().Read(*clocks).iteration_of_run;
}

// An earlier occurrence at the same site that mattered as much explains it better.
bool ExplainsBetter(const Lineage& lineage, const Origin& origin, bool anomalous,
                    const IncidentDraft& draft) {
  if (anomalous != draft.anomalous) return anomalous;
  const int64_t moment = MomentOf(lineage, origin.clocks);
  const int64_t known = MomentOf(*draft.lineage, draft.origin->clocks);
  if (&lineage == draft.lineage || moment == known) {
    return &lineage == draft.lineage && origin.ticket < draft.origin->ticket;
  }
  return moment < known;
}

void AddEvents(const Lineage& lineage, Drafts& drafts) {
  for (const ReachEvent& event : lineage.events()) {
    if (event.origin < 0) continue;
    IncidentDraft& draft = DraftOf(drafts, lineage, event.origin);
    const Origin& origin = lineage.origins()[static_cast<size_t>(event.origin)];
    const bool anomalous = IsAnomalous(event);
    if (ExplainsBetter(lineage, origin, anomalous, draft)) {
      draft.lineage = &lineage;
      draft.origin = &origin;
    }
    draft.anomalous |= anomalous;
    draft.reach.insert(event.reach);
    draft.SeeStep(StepAt(lineage, event.clocks));
    draft.events.push_back(&event);
  }
}

// Of one value a metric or a buffer may be told for certain, and what harmed the training only by a
// guess (it came back as a number, another one lay beside it): then the incident is not exact.
void TakeDoubts(const Lineage& lineage, Drafts& drafts) {
  struct Harm {
    bool surely = false;
    const Origin* guess = nullptr;  // else as this one says
  };
  std::map<IncidentDraft*, std::pair<Harm, Harm>> harms;  // of the training, and of buffers
  for (const ReachEvent& event : lineage.events()) {
    if (event.origin < 0 || !IsAnomalous(event) || event.reach == Reach::kMetric) continue;
    const Origin& origin = lineage.origins()[static_cast<size_t>(event.origin)];
    IncidentDraft& draft = DraftOf(drafts, lineage, event.origin);
    if (draft.lineage != &lineage || draft.origin->node != origin.node) continue;
    auto& [of_training, of_buffers] = harms[&draft];
    Harm& harm = event.reach == Reach::kBuffer ? of_buffers : of_training;
    harm.surely |= origin.exact;
    if (!origin.exact && harm.guess == nullptr) harm.guess = &origin;
  }
  for (const auto& [draft, each] : harms) {
    const auto& [of_training, of_buffers] = each;
    const bool trained = of_training.surely || of_training.guess != nullptr;
    const Harm& harm = trained ? of_training : of_buffers;
    if (!harm.surely && harm.guess != nullptr) draft->origin = harm.guess;
  }
}

// Values are counted for their incident; what a site counted beyond its records goes where its last
// record went.
void AddValues(const Lineage& lineage, Drafts& drafts) {
  std::map<const Site*, std::pair<uint64_t, IncidentDraft*>> recorded;
  for (const ValueNode& node : lineage.nodes()) {
    if (node.origin < 0) continue;
    IncidentDraft& draft = DraftOf(drafts, lineage, node.origin);
    draft.reach.insert(Reach::kActivation);
    ++draft.count;
    draft.SeeStep(StepAt(lineage, node.clocks));
    if (node.site != nullptr) {
      auto& [times, last] = recorded[node.site];
      ++times;
      last = &draft;
    }
  }
  for (const auto& [site, seen] : recorded) {
    const auto& [times, draft] = seen;
    if (site->count() <= times) continue;
    draft->count += site->count() - times;
    if (site->has_last_clocks()) draft->SeeStep(StepAt(lineage, &site->last_clocks()));
  }
}

void AddDeath(const Lineage& lineage, Drafts& drafts) {
  for (const int index : OriginsAtDeath(lineage)) {
    const Origin& origin = lineage.origins()[static_cast<size_t>(index)];
    if (origin.IsMask()) continue;
    IncidentDraft& draft = DraftOf(drafts, lineage, index);
    // It is reported by what it reached; a number that was only looked at matters less.
    if (draft.anomalous && !ReachedMetricsAlone(draft)) continue;
    draft.lineage = &lineage;
    draft.origin = &origin;
    draft.anomalous = draft.ended_job = true;
  }
}

void SortEvents(IncidentDraft& draft) {
  const Lineage* home = draft.lineage;
  const auto* const begin = home->events().data();
  const auto* const end = begin + home->events().size();
  const auto is_home = [&](const ReachEvent* event) { return event >= begin && event < end; };
  for (const ReachEvent* event : draft.events) {
    if (!is_home(event)) draft.other_events.push_back(event);
  }
  std::erase_if(draft.events, [&](const ReachEvent* event) { return !is_home(event); });
}

std::string Severity(const IncidentDraft& draft) {
  if (!draft.anomalous || draft.origin->expected_by != nullptr) return "info";
  if (ReachedMetricsAlone(draft)) return "warning";
  const bool lasting = draft.reach.contains(Reach::kParameter) ||
                       draft.reach.contains(Reach::kBuffer) ||
                       draft.reach.contains(Reach::kOptimizerState);
  return lasting ? "critical" : "error";
}

int SeverityRank(const std::string& severity) {
  constexpr std::array<std::string_view, 4> kOrder = {"critical", "error", "warning", "info"};
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), severity) - kOrder.begin());
}

// A run is ruined by bad parameters; a bad buffer shows at evaluation, so it comes after them.
int ReachRank(const Incident& incident) {
  constexpr std::array<std::string_view, 6> kOrder = {
      "parameter", "optimizer_state", "buffer", "gradient", "loss", "metric"};
  for (size_t i = 0; i < kOrder.size(); ++i) {
    const auto& reach = incident.reach();
    if (std::find(reach.begin(), reach.end(), kOrder[i]) != reach.end()) return static_cast<int>(i);
  }
  return static_cast<int>(kOrder.size());
}

// How many were bad the first time. A pass is told several times while it goes on; its last word
// counts.
uint64_t FirstCount(const IncidentDraft& draft, Reach reach) {
  for (const auto* events : {&draft.events, &draft.other_events}) {
    const ReachEvent* first = nullptr;
    uint64_t count = 0;
    for (const ReachEvent* event : *events) {
      if (event->reach != reach || event->count == 0) continue;
      if (first == nullptr) first = event;
      const bool same =
          first->pass != 0 ? event->pass == first->pass : event->ticket == first->ticket;
      if (same) count = std::max<uint64_t>(count, event->count);
    }
    if (count > 0) return count;
  }
  return 0;
}

}  // namespace

void IncidentDraft::SeeStep(int64_t step) {
  if (step < 0) return;
  first_step = first_step < 0 ? step : std::min(first_step, step);
  last_step = std::max(last_step, step);
}

void IncidentDraft::Merge(const IncidentDraft& other) {
  for (const ReachEvent* event : other.events) other_events.push_back(event);
  for (const ReachEvent* event : other.other_events) other_events.push_back(event);
  reach.insert(other.reach.begin(), other.reach.end());
  anomalous |= other.anomalous;
  ended_job |= other.ended_job;
  count += other.count;
  SeeStep(other.first_step);
  SeeStep(other.last_step);
}

bool IsAnomalous(const ReachEvent& event) {
  return !event.deliberate && !event.excused && !event.unapplied;
}

bool ReachedMetricsAlone(const IncidentDraft& draft) {
  if (draft.ended_job) return false;
  const auto is_other = [](const ReachEvent* event) {
    return IsAnomalous(*event) && event->reach != Reach::kMetric;
  };
  return std::none_of(draft.events.begin(), draft.events.end(), is_other) &&
         std::none_of(draft.other_events.begin(), draft.other_events.end(), is_other);
}

// A parameter that came in bad, or that something made so which nobody saw (a compiled update).
bool IsRuinedUnseen(const IncidentDraft& draft) {
  const Origin& origin = *draft.origin;
  return draft.anomalous && !ReachedMetricsAlone(draft) && !origin.exact && origin.IsExternal() &&
         origin.target == static_cast<uint32_t>(wire::Target::kParameter);
}

Drafts GatherIncidents(const std::vector<Lineage>& runs) {
  Drafts drafts;
  for (const Lineage& lineage : runs) AddEvents(lineage, drafts);
  for (const Lineage& lineage : runs) TakeDoubts(lineage, drafts);
  for (const Lineage& lineage : runs) AddValues(lineage, drafts);
  for (const Lineage& lineage : runs) AddDeath(lineage, drafts);
  for (auto& [key, draft] : drafts) {
    SortEvents(draft);
    if (IsRuinedUnseen(draft)) draft.reach.insert(Reach::kParameter);
  }
  return drafts;
}

// What is read when a job has ended, or when the last step of a block has, was bad by the last step
// that was complete.
int64_t NoLaterThanLast(const IncidentDraft& draft, int64_t step) {
  const RunState& state = draft.lineage->facts().state();
  const int64_t steps = StepAt(*draft.lineage, &state.clocks());
  return state.ended() && step > 0 && step == steps ? steps - 1 : step;
}

Incident Finish(const IncidentDraft& draft) {
  Incident incident;
  incident.set_severity(Severity(draft));
  *incident.mutable_origin() = DescribeOrigin(*draft.lineage, *draft.origin);
  for (const Reach reach : draft.reach) incident.add_reach(ReachName(static_cast<uint32_t>(reach)));
  if (draft.anomalous && draft.origin->expected_by != nullptr) {
    incident.set_expected_by(*draft.origin->expected_by);
  }
  incident.set_count(draft.count);
  if (draft.ranks.size() > 1) incident.mutable_ranks()->Add(draft.ranks.begin(), draft.ranks.end());
  // A worker has no steps of its own: its value begins to matter where a training meets it.
  const bool unseen_updates =
      UpdatesWereUnseen(*draft.lineage, *draft.origin, draft.origin->clocks);
  if (incident.origin().step() < 0 && !unseen_updates && !draft.other_events.empty()) {
    incident.mutable_origin()->set_step(draft.first_step);
  }
  // What came in with the data set, before the first step, begins where it is first computed with.
  const bool came_in = incident.origin().kind() == "input_data" &&
                       StepAt(*draft.lineage, draft.origin->clocks) < incident.origin().step();
  incident.set_first_step(came_in ? std::max(draft.first_step, incident.origin().step())
                                  : draft.first_step);
  incident.set_last_step(draft.last_step);
  if (unseen_updates) {
    incident.set_first_step(-1);
    incident.set_last_step(-1);
  }
  if (WasReadLater(incident.origin())) {
    const auto last = [&](int64_t step) { return NoLaterThanLast(draft, step); };
    const int64_t step = last(incident.origin().step());
    incident.mutable_origin()->set_iteration(incident.origin().iteration() + step -
                                             incident.origin().step());
    incident.mutable_origin()->set_step(step);
    incident.set_first_step(last(incident.first_step()));
    incident.set_last_step(last(incident.last_step()));
  }
  incident.set_gradients(FirstCount(draft, Reach::kGradient));
  incident.set_ended_job(draft.ended_job);
  incident.set_parameters(FirstCount(draft, Reach::kParameter));
  AddChain(draft, incident);
  if (const KernelsFact* kernels = draft.lineage->FindKernels(incident.origin().ticket())) {
    AddKernels(*kernels, *incident.mutable_origin());
  }
  if (const TrailFact* trail = draft.lineage->FindTrail(incident.origin().ticket())) {
    AddTrail(*trail, incident);
  }
  return incident;
}

bool IsMoreImportant(const FinishedIncident& a, const FinishedIncident& b) {
  const auto rank = [](const FinishedIncident& finished) {
    const auto& [incident, draft] = finished;
    return std::make_tuple(SeverityRank(incident.severity()), ReachRank(incident),
                           MomentOf(*draft->lineage, draft->origin->clocks),
                           incident.origin().ticket(), incident.origin().rank());
  };
  return rank(a) < rank(b);
}

}  // namespace nanwatch
