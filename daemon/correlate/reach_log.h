// SPDX-License-Identifier: Apache-2.0
// Every moment at which a bad value of a run reached a loss, a gradient, an update, a parameter or
// a buffer, and every one that was given to the other ranks.
//
// Once a parameter is bad, everything after it is bad because of that: so what is found here is
// reported to the graph of values (poisoned_tensors.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/correlate/fact_index.h"
#include "daemon/correlate/reach_event.h"
#include "daemon/correlate/value_graph.h"
#include "verdict.pb.h"

namespace nanwatch {

class ReachLog {
 public:
  // `index` and `values` must outlive the object.
  ReachLog(const RunFacts& facts, const FactIndex& index, ValueGraph& values);

  // In ticket order. A value is in the graph by then, as the node with this index.
  void OnValue(const Record& record, int node);
  void OnPass(const Record& record);
  void OnUpdate(const Record& record);
  void OnEscape(const Record& record);
  void OnCollective(const Record& record);
  // Last.
  void AddFirstReaches(const RunFacts& facts);

  // By ticket.
  [[nodiscard]] std::vector<ReachEvent> TakeEvents();
  [[nodiscard]] std::vector<BadRead> TakeReads() { return std::move(reads_); }
  [[nodiscard]] std::vector<Sending> TakeSendings() { return std::move(sendings_); }

 private:
  void AddEvent(ReachEvent event) { events_.push_back(std::move(event)); }
  void AddEventsOf(const Record& record, wire::Reach reach, const ValueGraph::Sources& bad,
                   uint32_t count, int fallback);
  [[nodiscard]] int LastGradientOrigin() const;
  void AddAppliedGradients(const Record& record, size_t first);
  [[nodiscard]] bool IsMetric(const EscapeFact& escape, int node) const;
  [[nodiscard]] bool HoldsResult(int node) const;
  [[nodiscard]] bool IsResult(int node) const;

  const FactIndex& index_;
  ValueGraph& values_;
  std::vector<ReachEvent> events_;
  std::vector<BadRead> reads_;
  std::vector<Sending> sendings_;
  const bool has_result_;  // it trained nothing, and never will; what it reads is what it is for
};

}  // namespace nanwatch
