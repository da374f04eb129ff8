// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/reach_log.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "daemon/correlate/moved_rule.h"
#include "daemon/correlate/run_end.h"
#include "daemon/correlate/wire_facts.h"
#include "proto/wire/escape_flags.h"
#include "proto/wire/record.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

using wire::Reach;
using wire::SourceKind;
using wire::Target;

// Before an update, of its last pass: a record has four, and a pass is told a few times.
constexpr size_t kGradientsReadMax = 32;

RecordSource SourceOfValue(uint64_t value, uint32_t site) {
  RecordSource source;
  source.set_kind(static_cast<uint32_t>(SourceKind::kValue));
  source.set_value(value);
  source.set_site(site);
  return source;
}

// Made with autograd on or in a pass, and perhaps part of what is trained. Where its record is
// lost, only autograd that was off says that it is not.
bool MayNeedGradient(const ValueNode& node) {
  if (Has(node.site->flags(), wire::ValueRecord::kWithoutGradients)) return false;
  if (node.record == nullptr || !IsIn(node.site, wire::Phase::kForward)) return true;
  return Has(node.record->value().flags(), wire::ValueRecord::kNeedsGradient);
}

// `update`: when it ended, itself not counted.
bool IsOfLastPass(const ReachEvent& gradient, const Clocks& update) {
  return gradient.clocks != nullptr && gradient.clocks->passes() == update.passes() &&
         gradient.clocks->optimizer_ranges() == update.optimizer_ranges();
}

// A helper of another process trains nothing either, but that process may: forked, or started as
// multiprocessing starts those that are not.
bool IsHelper(const Run& run) {
  const auto& command = run.command();
  return run.forked_from() != 0 ||
         std::any_of(command.begin(), command.end(), [](const std::string& word) {
           return word.find("multiprocessing") != std::string::npos;
         });
}

// A program that ended with an error came to no result: a check read the value, or the text of the
// error (death_rule.h).
bool HasResult(const RunFacts& facts) {
  const Clocks& clocks = facts.state().clocks();
  return facts.state().ended() && !EndedWithError(facts) && clocks.passes() == 0 &&
         UpdatesIn(clocks) == 0 && clocks.scaler_skips() == 0 && !IsHelper(facts.run());
}

}  // namespace

ReachLog::ReachLog(const RunFacts& facts, const FactIndex& index, ValueGraph& values)
    : index_(index), values_(values), has_result_(HasResult(facts)) {}

void ReachLog::OnValue(const Record& record, int node) {
  const ValueFact& fact = record.value();
  const int origin = values_.node(node).origin;
  const bool deliberate = values_.origins()[origin].IsMask() &&
                          !Has(fact.flags(), wire::ValueRecord::kInOptimizerRange);
  const auto reached = [&](uint32_t flag, Reach reach) {
    if (!Has(fact.flags(), flag)) return;
    if (reach == Reach::kBuffer && IsMovedWithin(values_, fact.param(), node)) {
      values_.poison().AddBuffer(fact.param(), origin);
      return;
    }
    AddEvent({.reach = reach,
              .ticket = record.ticket(),
              .clocks = &record.clocks(),
              .node = node,
              .origin = origin,
              .name = fact.param(),
              .how = ReachEvent::How::kWrite,
              .deliberate = deliberate});
    if (deliberate) return;
    if (reach == Reach::kParameter) values_.poison().AddParameter(record, fact.param(), origin);
    if (reach == Reach::kBuffer) values_.poison().AddBuffer(fact.param(), origin);
    if (reach == Reach::kOptimizerState) values_.poison().AddState(origin);
  };
  reached(wire::ValueRecord::kWroteParameter, Reach::kParameter);
  reached(wire::ValueRecord::kWroteOptimizerState, Reach::kOptimizerState);
  reached(wire::ValueRecord::kWroteBuffer, Reach::kBuffer);
  if (HoldsResult(node)) {
    AddEvent({.reach = Reach::kParameter,
              .ticket = record.ticket(),
              .clocks = &record.clocks(),
              .node = node,
              .origin = origin,
              .name = values_.origins()[origin].source->name(),
              .how = ReachEvent::How::kHeld});
  }
}

// A program that only runs a model may never read a number of what NaN in its weights makes: the
// largest of some NaN has a place, too, and an accuracy is counted from places.
bool ReachLog::HoldsResult(int node) const {
  const Origin& origin = values_.origins()[values_.node(node).origin];
  return has_result_ && origin.node == node && origin.IsExternal() && origin.source != nullptr &&
         Is(origin.target, Target::kParameter) && (origin.kinds & wire::kHasNan) != 0;
}

void ReachLog::AddEventsOf(const Record& record, Reach reach, const ValueGraph::Sources& bad,
                           uint32_t count, int fallback) {
  bool any = false;
  const ReachEvent::How how =
      reach == Reach::kGradient ? ReachEvent::How::kLeaf : ReachEvent::How::kUpdate;
  for (const RecordSource& source : bad) {
    const bool is_state = Is(source.target(), Target::kOptimizerState);
    if (reach == Reach::kParameter && is_state) continue;
    if (reach == Reach::kOptimizerState && !is_state) continue;
    ValueGraph::Best found;
    if (!Is(source, SourceKind::kUnknown) || fallback < 0)
      found = values_.FromSource(record, source, -1);
    const bool came_in = found.via >= 0 && values_.origins()[found.origin].node == found.via;
    if (reach == Reach::kGradient && came_in) {
      values_.origins().SetIsGradient(found.origin, source);
    }
    if (found.origin < 0) found.origin = fallback;
    if (found.origin < 0) found.origin = values_.origins().AddUnseen(record, nullptr, -1, &source);
    any = true;
    AddEvent({.reach = reach,
              .ticket = record.ticket(),
              .clocks = &record.clocks(),
              .node = found.via,
              .origin = found.origin,
              .name = source.name(),
              .how = how,
              .count = count});
  }
  if (any) return;
  const int origin =
      fallback >= 0 ? fallback : values_.origins().AddUnseen(record, nullptr, -1, nullptr);
  AddEvent({.reach = reach,
            .ticket = record.ticket(),
            .clocks = &record.clocks(),
            .origin = origin,
            .how = how,
            .count = count});
}

void ReachLog::OnPass(const Record& record) {
  const PassFact& pass = record.pass();
  const size_t first = events_.size();
  const bool root_bad = pass.root_value() != 0 || pass.root_site() != 0 ||
                        Has(pass.flags(), wire::PassRecord::kRootBad);
  if (root_bad && values_.FindBadRoot(pass.pass()) == nullptr) {
    const RecordSource root = SourceOfValue(pass.root_value(), pass.root_site());
    const int node = values_.Resolve(root, record);
    int origin = node >= 0 ? values_.node(node).origin : values_.poison().Assumed(record);
    if (origin < 0) origin = values_.origins().AddUnseen(record, nullptr, -1, nullptr);
    values_.origins().SetBecameLoss(origin);
    const int came_as = origin;
    origin = values_.origins().NoLongerMask(origin);
    AddEvent({.reach = Reach::kLoss,
              .ticket = record.ticket(),
              .clocks = &record.clocks(),
              .node = node,
              .origin = origin});
    values_.NoteBadRoot(pass.pass(), {origin, node}, came_as);
  }
  const bool leaf_bad =
      pass.leaves_bad() > 0 || pass.bad_size() > 0 || Has(pass.flags(), wire::PassRecord::kLeafBad);
  if (leaf_bad) {
    const ValueGraph::Best* root = values_.FindBadRoot(pass.pass());
    const int fallback = root != nullptr ? root->origin : values_.poison().Assumed(record);
    AddEventsOf(record, Reach::kGradient, pass.bad(), pass.leaves_bad(), fallback);
  }
  for (size_t i = first; i < events_.size(); ++i) {
    events_[i].pass = pass.pass();
    if (events_[i].reach == Reach::kGradient)
      values_.poison().AddGradient(record, events_[i].name, events_[i].origin);
  }
}

// The gradients an update was made of are those of the passes since the last one.
int ReachLog::LastGradientOrigin() const {
  for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
    if (event->reach == Reach::kGradient) return event->origin;
  }
  return -1;
}

// An update lists the first few parameters that it has left bad. Whatever else was bad among the
// gradients of its last pass reached a parameter as well. `first`: of the update's own events.
void ReachLog::AddAppliedGradients(const Record& record, size_t first) {
  std::vector<std::string> listed;
  std::set<int> reached;
  for (size_t i = first; i < events_.size(); ++i) {
    if (events_[i].reach != Reach::kParameter) continue;
    listed.push_back(events_[i].name);
    reached.insert(events_[i].origin);
  }
  // Of what an op on a list has written, only the first is known for a parameter.
  const UpdateFact& update = record.update();
  const bool lists_all =
      static_cast<int64_t>(update.parameters_bad()) + update.states_bad() <= update.bad_size();
  for (size_t i = first; i-- > 0 && first - i <= kGradientsReadMax;) {
    const ReachEvent gradient = events_[i];
    if (gradient.reach != Reach::kGradient || gradient.name.empty() ||
        !IsOfLastPass(gradient, record.clocks())) {
      continue;
    }
    const bool is_listed = std::find(listed.begin(), listed.end(), gradient.name) != listed.end();
    if ((lists_all && !is_listed) || !reached.insert(gradient.origin).second) continue;
    AddEvent({.reach = Reach::kParameter,
              .ticket = record.ticket(),
              .clocks = &record.clocks(),
              .node = gradient.node,
              .origin = gradient.origin,
              .name = gradient.name,
              .how = ReachEvent::How::kUpdate,
              .count = update.parameters_bad()});
  }
}

void ReachLog::OnUpdate(const Record& record) {
  const UpdateFact& update = record.update();
  const bool nothing_bad = update.parameters_bad() == 0 && update.states_bad() == 0;
  if (Has(update.flags(), wire::UpdateRecord::kSkipped)) {
    values_.poison().ForgetApplied();
    return;
  }
  if (nothing_bad) {
    // Somebody loaded a checkpoint, or never let the gradients in: what comes next is a new story.
    if (Has(update.flags(), wire::UpdateRecord::kScanned)) values_.poison().ForgetParameters();
    values_.poison().ForgetGradients(Has(update.flags(), wire::UpdateRecord::kScanned));
    return;
  }
  const int assumed = values_.poison().Assumed(record);
  const int fallback = assumed >= 0 ? assumed : LastGradientOrigin();
  const size_t first = events_.size();
  if (update.parameters_bad() > 0) {
    AddEventsOf(record, Reach::kParameter, update.bad(), update.parameters_bad(), fallback);
  }
  if (update.states_bad() > 0) {
    const int of_parameters = events_.size() > first ? events_[first].origin : fallback;
    AddEventsOf(record, Reach::kOptimizerState, update.bad(), update.states_bad(), of_parameters);
  }
  if (update.parameters_bad() > 0) AddAppliedGradients(record, first);
  for (size_t i = first; i < events_.size(); ++i) {
    if (events_[i].reach == Reach::kOptimizerState) values_.poison().AddState(events_[i].origin);
    if (events_[i].reach != Reach::kParameter) continue;
    values_.poison().AddParameter(record, events_[i].name, events_[i].origin);
  }
}

// What a program that trained nothing, and ended well, computed and read is all there is of it,
// with autograd on or off. Not what was bad when it came in, which it may be looking for.
bool ReachLog::IsResult(int node) const {
  if (!has_result_) return false;
  const Origin& origin = values_.origins()[values_.node(node).origin];
  return origin.strength == Origin::Strength::kMade && !origin.IsExternal() && !origin.IsReceived();
}

// A NaN that Python read, and that was made with autograd off: a validation loss, an accuracy, and
// what was summed up of them later. Inf is a usual start value of a best loss, and no sign of a
// fault. What was bad before autograd was off is a loss, a gradient (its norm is computed with
// autograd off), or comes of one, and is judged as such, unless a module was called with it: then
// it is a batch, made ready before. A NaN that the program itself put among many numbers marks what
// is missing.
bool ReachLog::IsMetric(const EscapeFact& escape, int node) const {
  if (!std::isnan(escape.value())) return false;
  if (IsResult(node)) return true;
  const bool of_many = Has(escape.flags(), wire::kReadWithOthers);
  if (of_many && values_.origins()[values_.node(node).origin].IsMask()) return false;
  bool without_gradients = false;
  bool in_module = false;  // an op that computes with the value, or with what was copied of it
  for (; node >= 0; node = values_.node(node).via) {
    const Site* site = values_.node(node).site;
    if (site == nullptr || MayNeedGradient(values_.node(node))) return false;
    const bool off = Has(site->flags(), wire::ValueRecord::kWithoutGradients);
    if (without_gradients && !off)
      return in_module && !values_.origins()[values_.node(node).origin].IsMask();
    without_gradients |= off;
    in_module |= !IsOutsideModules(*site) && IsIn(site, wire::Phase::kForward);
  }
  return without_gradients;
}

// A number that Python read, or the program compared with another, is the loss if backward roots
// are made at the same place. A metric may be made by the same op there (the mean over one class),
// but needs no gradient: no pass could begin at it. Without its record nobody knows.
void ReachLog::OnEscape(const Record& record) {
  const EscapeFact& escape = record.escape();
  if (!Is(escape.source(), SourceKind::kValue)) return;
  const int node = values_.Resolve(escape.source(), record);
  if (node < 0) return;
  const Site* reader = index_.FindSite(escape.site());
  const Clocks* last = reader != nullptr ? &reader->last_clocks() : &record.clocks();
  const bool tested = Has(escape.flags(), wire::kAskedOnly);
  reads_.push_back({values_.node(node).origin, &record.clocks(), last, tested});
  if (tested) return;
  values_.NoteRead(record);
  const Site* site = values_.node(node).site;
  const Record* made = values_.node(node).record;
  if (IsMetric(escape, node)) {
    AddEvent({.reach = Reach::kMetric,
              .ticket = record.ticket(),
              .clocks = &record.clocks(),
              .node = node,
              .origin = values_.node(node).origin,
              .how = ReachEvent::How::kRead});
    return;
  }
  if (made != nullptr && !Has(made->value().flags(), wire::ValueRecord::kNeedsGradient)) return;
  const bool is_root = site != nullptr && index_.IsRoot(*site);
  if (Has(escape.flags(), wire::kReadWithOthers)) return;
  if (!is_root && !Has(escape.flags(), wire::kMayBeLoss)) return;
  AddEvent({.reach = Reach::kLoss,
            .ticket = record.ticket(),
            .clocks = &record.clocks(),
            .node = node,
            .origin = values_.node(node).origin,
            .how = ReachEvent::How::kEscape});
}

void ReachLog::OnCollective(const Record& record) {
  const CollectiveFact& fact = record.collective();
  if (!Has(fact.flags(), wire::CollectiveRecord::kInputBad)) return;
  const ValueGraph::Best found = values_.FromSource(record, fact.input(), -1);
  if (found.origin < 0) return;
  const uint32_t of_node = found.via >= 0 ? values_.node(found.via).kinds : 0;
  sendings_.push_back({.group = fact.group(),
                       .sequence = fact.sequence(),
                       .time_ns = record.time_ns(),
                       .origin = found.origin,
                       .clocks = &record.clocks(),
                       .kinds = fact.input().kinds() | of_node});
}

// The section that nothing evicts: it stands in for the records that were lost. Gradients are left
// out, because without its pass nobody knows whether a scaler took care of one.
void ReachLog::AddFirstReaches(const RunFacts& facts) {
  for (const FirstReachFact& fact : facts.reach()) {
    const auto reach = static_cast<Reach>(fact.reach());
    if (fact.reach() > static_cast<uint32_t>(Reach::kBuffer)) continue;
    if (reach == Reach::kActivation || reach == Reach::kGradient) continue;
    const bool is_recorded =
        std::any_of(events_.begin(), events_.end(),
                    [&](const ReachEvent& event) { return event.reach == reach; });
    const int node = values_.Find(fact.value());
    if (is_recorded || node < 0) continue;
    if (reach == Reach::kBuffer && IsMovedWithin(values_, fact.name(), node)) continue;
    const int origin = values_.node(node).origin;
    AddEvent({.reach = reach,
              .ticket = fact.ticket(),
              .clocks = &fact.clocks(),
              .node = node,
              .origin = origin,
              .name = fact.name(),
              .how = ReachEvent::How::kFirstReach,
              .deliberate = values_.origins()[origin].IsMask()});
  }
}

std::vector<ReachEvent> ReachLog::TakeEvents() {
  std::stable_sort(events_.begin(), events_.end(),
                   [](const ReachEvent& a, const ReachEvent& b) { return a.ticket < b.ticket; });
  return std::move(events_);
}

}  // namespace nanwatch
