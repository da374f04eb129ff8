// SPDX-License-Identifier: Apache-2.0
// The graph of bad values of one run, walked once in ticket order: for every value where it came
// from, and every moment at which one reached a loss, a gradient, an update, a parameter or a
// buffer.
//
//   records by ticket:   value 7   value 9 <- 7   pass: root 9, leaf 12 <- 9   update <- 12
//   nodes:               7 (origin: itself)   9 (origin: 7)   12 (origin: 7)
//   events:              loss at 9   gradient at 12   parameter at 15
//
// Edges only point to smaller tickets, so one pass over the records is enough and a forged cycle
// cannot be walked. A value without a record is known by its site at most; it becomes a node of its
// own that takes its place in the chain from the last recorded value of that site.
//
// Once a parameter is bad, everything after it is bad because of that: values that come in from the
// bad parameter, and values whose inputs were not checked, go to the origin of what made it bad.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/correlate/fact_index.h"
#include "daemon/correlate/incident_key.h"
#include "daemon/correlate/origin.h"
#include "daemon/correlate/reach_event.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/value_node.h"
#include "verdict.pb.h"

namespace nanwatch {

class Lineage {
 public:
  // `facts` and `excused` must outlive the object: it keeps pointers into them.
  Lineage(const RunFacts& facts, const Excused& excused);

  [[nodiscard]] const RunFacts& facts() const { return facts_; }
  [[nodiscard]] const StepClock& clock() const { return clock_; }
  [[nodiscard]] const std::vector<ValueNode>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<Origin>& origins() const { return origins_; }
  [[nodiscard]] const std::vector<ReachEvent>& events() const { return events_; }
  [[nodiscard]] const std::vector<Sending>& sendings() const { return sendings_; }
  [[nodiscard]] const Site* FindSite(uint32_t id) const { return index_.FindSite(id); }
  // The ops before the value with this ticket; null where they were not kept.
  [[nodiscard]] const TrailFact* FindTrail(uint64_t value) const { return index_.FindTrail(value); }
  // The kernels that its op ran; null where they are not known.
  [[nodiscard]] const KernelsFact* FindKernels(uint64_t value) const {
    return index_.FindKernels(value);
  }

 private:
  Lineage(const RunFacts& facts, const Excused& excused, const std::vector<const Record*>& records);

  const RunFacts& facts_;
  StepClock clock_;
  FactIndex index_;
  DeadSteps dead_;
  std::vector<ValueNode> nodes_;
  std::vector<Origin> origins_;
  std::vector<ReachEvent> events_;
  std::vector<Sending> sendings_;
};

}  // namespace nanwatch
