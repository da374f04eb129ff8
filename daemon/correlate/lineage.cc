// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/lineage.h"

#include "daemon/correlate/dead_rule.h"
#include "daemon/correlate/loaded_rule.h"
#include "daemon/correlate/node_rule.h"
#include "daemon/correlate/number_rule.h"
#include "daemon/correlate/reach_log.h"
#include "daemon/correlate/run_end.h"
#include "daemon/correlate/saved_rule.h"
#include "daemon/correlate/scaler_rule.h"
#include "daemon/correlate/unapplied_rule.h"
#include "daemon/correlate/value_graph.h"

namespace nanwatch {
namespace {

void Walk(const std::vector<const Record*>& records, ValueGraph& values, ReachLog& reach) {
  for (const Record* record : records) {
    switch (record->fact_case()) {
      case Record::kValue:
        reach.OnValue(*record, values.Add(*record));
        break;
      case Record::kPass:
        reach.OnPass(*record);
        break;
      case Record::kUpdate:
        reach.OnUpdate(*record);
        break;
      case Record::kEscape:
        reach.OnEscape(*record);
        break;
      case Record::kCollective:
        reach.OnCollective(*record);
        break;
      default:
        break;
    }
  }
}

}  // namespace

Lineage::Lineage(const RunFacts& facts, const Excused& excused)
    : Lineage(facts, excused, InTicketOrder(facts)) {}

Lineage::Lineage(const RunFacts& facts, const Excused& excused,
                 const std::vector<const Record*>& records)
    : facts_(facts), clock_(facts), index_(facts, records), dead_(FindDeadSteps(facts)) {
  ValueGraph values(index_, clock_, excused);
  ReachLog reach(facts, index_, values);
  Walk(records, values, reach);
  reach.AddFirstReaches(facts);
  nodes_ = values.TakeNodes();
  origins_ = values.origins().Take();
  events_ = reach.TakeEvents();
  sendings_ = reach.TakeSendings();
  TakeForNumber(clock_, origins_, nodes_, events_, sendings_);
  TakeForSaved(clock_, origins_, nodes_, events_, sendings_);
  TakeForLoaded(clock_, origins_, nodes_, events_, sendings_);
  TakeForWritten(origins_, nodes_, events_);
  TakeForItsGradient(origins_, nodes_, events_, sendings_);
  ExcuseSkippedUpdates(records, facts.state().clocks(), origins_, events_);
  MarkUnapplied(records, facts.state().clocks(), origins_, nodes_, reach.TakeReads(),
                EndedWell(facts.state()), events_);
  AddLossOfDead(facts, dead_, clock_, events_);
}

}  // namespace nanwatch
