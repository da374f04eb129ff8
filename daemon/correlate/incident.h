// SPDX-License-Identifier: Apache-2.0
// Incidents in the making: what shares an origin is gathered, over all processes of the job, then
// judged.
//
// Same origin means the same site: (op, layer, root, autograd node, phase, source line or
// parameter). A NaN that the same line makes at every step is one incident with a count, on
// whatever rank it happens. A recomputation is at the same site as the forward that it repeats.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/correlate/incident_key.h"
#include "daemon/correlate/lineage.h"
#include "verdict.pb.h"

namespace nanwatch {

struct IncidentDraft {
  const Lineage* lineage = nullptr;       // of the run where the origin is
  const Origin* origin = nullptr;         // the first occurrence that mattered, else the first
  std::vector<const ReachEvent*> events;  // in the origin's run, by ticket
  std::vector<const ReachEvent*> other_events;  // in other runs
  std::set<wire::Reach> reach;
  bool anomalous = false;   // something reached further than it may, or:
  bool ended_job = false;   // the job ended with an error that it may have led to (death_rule.h)
  uint64_t count = 0;       // values that belong to it
  std::set<int32_t> ranks;  // with an origin of their own at its site
  int64_t first_step = -1;  // -1 unknown
  int64_t last_step = -1;

  void SeeStep(int64_t step);
  void Merge(const IncidentDraft& other);  // keeps the own origin
};

using Drafts = std::map<IncidentKey, IncidentDraft>;

// Whether the verdict is anomaly because of it.
[[nodiscard]] bool IsAnomalous(const ReachEvent& event);
// Nothing of the training itself was harmed: a number that it shows is wrong.
[[nodiscard]] bool ReachedMetricsAlone(const IncidentDraft& draft);

[[nodiscard]] Drafts GatherIncidents(const std::vector<Lineage>& runs);

// The finished incident: severity, origin, chain, reach, counts. Patterns are not looked up.
[[nodiscard]] Incident Finish(const IncidentDraft& draft);

// Most important first: severity, how far it got, then when it happened.
using FinishedIncident = std::pair<Incident, const IncidentDraft*>;
[[nodiscard]] bool IsMoreImportant(const FinishedIncident& a, const FinishedIncident& b);

}  // namespace nanwatch
