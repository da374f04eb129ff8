// SPDX-License-Identifier: Apache-2.0
// Of a value's sources: where each came from, and which of them explains the value.
#include <algorithm>

#include "daemon/correlate/value_graph.h"
#include "daemon/correlate/wire_facts.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::SourceKind;
using wire::Target;

// By counts: false where they were not written down.
bool IsNanAlone(const ValueFact& value) {
  return value.outputs_size() > 0 &&
         std::all_of(value.outputs().begin(), value.outputs().end(),
                     [](const RecordTensor& tensor) {
                       return tensor.nan() > 0 && tensor.pos_inf() == 0 && tensor.neg_inf() == 0;
                     });
}

// What one collective was given may have come by another one; a forged record names itself.
constexpr int kCollectivesFollowedMax = 64;

// One more for as long as it lives.
class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) { ++depth_; }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& depth_;
};

bool IsFault(const Origin& origin) {
  return origin.strength == Origin::Strength::kMade && origin.expected_by == nullptr;
}

// The same op at the same line of code, in whatever layer.
bool IsSamePlace(const Site* a, const Site* b) {
  return a == b || (a != nullptr && b != nullptr && a->op() == b->op() &&
                    a->source() == b->source() && !a->source().empty());
}

// Rows of one batch are alike, parameters of a model, and what an op has made in one place.
bool IsLike(const Origin& a, const Origin& b) {
  if (a.CameInNameless() || b.CameInNameless()) return a.CameInNameless() == b.CameInNameless();
  return a.target == b.target && (a.IsExternal() || IsSamePlace(a.site, b.site));
}

}  // namespace

ValueGraph::Best ValueGraph::BestSource(const Record& record, const Sources& sources,
                                        int consumer) {
  Best best;
  // Where NaN alone came out, the NaN that went in tells why, whatever mask of -Inf went in beside
  // it. With Inf left in the result, each may live on in a part of it.
  const bool only_nan = record.has_value() && IsNanAlone(record.value()) &&
                        std::any_of(sources.begin(), sources.end(), [](const RecordSource& source) {
                          return Has(source.kinds(), wire::kHasNan);
                        });
  Best of_step;
  int other = -1;
  bool is_mixed = false;
  const auto keep_better = [this](const Best& found, Best& kept) {
    if (kept.origin < 0 || Explains(origins_[found.origin], origins_[kept.origin])) kept = found;
  };
  for (const RecordSource& source : sources) {
    if (only_nan && source.kinds() == wire::kHasNegInf) continue;
    const Best found = FromSource(record, source, consumer);
    if (found.origin < 0) continue;
    keep_better(found, best);
    const Origin& origin = origins_[found.origin];
    if (!IsFault(origin)) continue;
    is_mixed |= other >= 0 && !IsLike(origin, origins_[other]);
    other = found.origin;
    if (IsOfStep(origin, record)) keep_better(found, of_step);
  }
  // A row of NaN beside the rows of a history that are not filled yet: what is new may have made the
  // difference, and nobody knows which of the two is read later.
  if (best.origin >= 0 && of_step.origin >= 0 && IsIdleBuffer(best.origin, record)) {
    best = of_step;
    best.origin = origins_.NoLongerExact(best.origin, Origin::kUnseenBeside);
  } else if (is_mixed && MayBeReadInPart(record)) {
    best.origin = origins_.NoLongerExact(best.origin, Origin::kUnseenBeside);
  }
  return best;
}

// Of what two faults have made in a forward a part may be taken later, which only one of them has
// made. What is one number cannot be parted.
bool ValueGraph::MayBeReadInPart(const Record& record) const {
  if (!record.has_value()) return false;
  const Site* site = index_.FindSite(record.value().site());
  if (IsIn(site, wire::Phase::kBackward) || IsIn(site, wire::Phase::kOptimizer)) return false;
  const auto& outputs = record.value().outputs();
  return outputs.empty() || std::any_of(outputs.begin(), outputs.end(),
                                        [](const RecordTensor& each) { return each.numel() > 1; });
}

// NaN never becomes Inf. Where NaN and Inf lie in one tensor and only Inf is left of it, another
// source has brought that. -1: none is known.
int ValueGraph::InfBeside(const Record& record) const {
  int best = -1;
  for (const RecordSource& source : record.value().sources()) {
    const int index = Is(source, SourceKind::kValue) ? Find(source.value()) : -1;
    if (index < 0 || node(index).origin < 0) continue;
    const bool has_inf = (origins_[node(index).origin].kinds & ~uint32_t{wire::kHasNan}) != 0;
    const int found = has_inf ? node(index).origin : node(index).with_inf;
    if (found < 0) continue;
    if (best < 0 || Explains(origins_[found], origins_[best])) best = found;
  }
  return best;
}

bool ValueGraph::IsOfStep(const Origin& origin, const Record& record) const {
  return origin.clocks != nullptr && !IsEarlierStep(*origin.clocks, record.clocks());
}

// A buffer that has been bad since an earlier step, and has spoiled nothing.
bool ValueGraph::IsIdleBuffer(int index, const Record& record) const {
  const Origin& origin = origins_[index];
  return origin.IsExternal() && Is(origin.target, Target::kBuffer) && origin.clocks != nullptr &&
         IsEarlierStep(*origin.clocks, record.clocks()) && !lost_.contains(index) &&
         !poison_.Spoiled(index);
}

ValueGraph::Best ValueGraph::FromSource(const Record& record, const RecordSource& source,
                                        int consumer) {
  if (Is(source, SourceKind::kValue)) {
    const int index = Resolve(source, record);
    if (index >= 0 && index != consumer) {
      return {node(index).origin, index, Because::kFromSource};
    }
  } else if (Is(source, SourceKind::kExternal)) {
    return FromExternal(record, source, consumer);
  } else if (Is(source, SourceKind::kCollective)) {
    return FromCollective(record, source, consumer);
  } else if (Is(source, SourceKind::kNone)) {
    return {};
  }
  if (poison_.Assumed(record) >= 0) return Assumed(record);
  return {UnseenOrigin(record, consumer, &source), -1, Because::kUnseen};
}

bool ValueGraph::IsUncheckedUpdate(const Record& record) const {
  return record.has_value() && Has(record.value().flags(), wire::ValueRecord::kUnseenLevel) &&
         IsIn(index_.FindSite(record.value().site()), wire::Phase::kOptimizer);
}

// Between two updates nothing is followed at level canary: an update finds its own state bad that
// the one before has spoiled.
int ValueGraph::StateRead(const Record& record, uint32_t target) const {
  const Site* site = index_.FindSite(record.value().site());
  const bool in_update = record.has_value() && IsIn(site, wire::Phase::kOptimizer);
  const bool nameless = Is(target, Target::kNone) || Is(target, Target::kInputData) ||
                        Is(target, Target::kOptimizerState);
  return in_update && nameless ? poison_.State() : -1;
}

ValueGraph::Best ValueGraph::FromExternal(const Record& record, const RecordSource& source,
                                          int consumer) {
  const int inherited = poison_.Inherited(record, source.target(), source.name());
  if (inherited >= 0) return {inherited, -1, Because::kFromSource};
  // An update that no op was seen to make has applied its bad gradient.
  if (Is(source.target(), Target::kParameter) && Has(source.flags(), wire::Source::kWriterUnseen)) {
    const int applied = poison_.AppliedUnseen(record, source.name());
    if (applied >= 0) return {applied, -1, Because::kFromSource};
  }
  // At level canary an update finds bad what the pass before it may have read so.
  if (Is(source.target(), Target::kParameter) && IsUncheckedUpdate(record)) {
    const int of_pass = poison_.GradientOf(source.name());
    if (of_pass >= 0) return {of_pass, -1, Because::kFromSource};
  }
  if (const int state = StateRead(record, source.target()); state >= 0) {
    return {state, -1, Because::kFromSource};
  }
  Origin::Strength strength = Origin::Strength::kMade;
  if (source.kinds() == wire::kHasNegInf) strength = Origin::Strength::kAskedFor;
  if (Is(source.target(), Target::kUninitialised)) strength = Origin::Strength::kUninitialised;
  return {origins_.AddCameIn(record, NodeOrNull(consumer), consumer, source,
                             FindingClass::kExternal, strength),
          -1, Because::kCameIn};
}

ValueGraph::Best ValueGraph::FromCollective(const Record& record, const RecordSource& source,
                                            int consumer) {
  const CollectiveFact* collective = index_.FindCollective(source.name(), source.value());
  const Deeper deeper(collectives_followed_);
  if (collective != nullptr && collectives_followed_ <= kCollectivesFollowedMax &&
      Has(collective->flags(), wire::CollectiveRecord::kInputBad)) {
    const Best sent = FromSource(record, collective->input(), consumer);
    if (sent.origin >= 0) return sent;
  }
  return {origins_.AddCameIn(record, NodeOrNull(consumer), consumer, source,
                             FindingClass::kReceived, Origin::Strength::kMade),
          -1, Because::kCameIn};
}

ValueGraph::Best ValueGraph::Assumed(const Record& record) const {
  return {poison_.Assumed(record), -1, Because::kPoisoned};
}

int ValueGraph::Resolve(const RecordSource& source, const Record& consumer) {
  const auto found = node_by_value_.find(source.value());
  if (found != node_by_value_.end()) return found->second;
  const Site* site = index_.FindSite(source.site());
  if (site == nullptr || source.value() > consumer.ticket()) return -1;
  return AddSuppressed(source, *site, consumer);
}

int ValueGraph::AddSuppressed(const RecordSource& source, const Site& site,
                              const Record& consumer) {
  ValueNode self;
  self.ticket = source.value() != 0 ? source.value() : consumer.ticket();
  self.site = &site;
  self.clocks = &consumer.clocks();  // what it was consumed in: the step it was made in, or later
  self.kinds = source.kinds() != 0 ? source.kinds() : site.kinds();
  const int index = static_cast<int>(nodes_.size());
  nodes_.push_back(self);
  const auto last = last_node_of_site_.find(site.id());
  const auto own = [&](Origin::Strength strength) { return OwnOrigin(index, strength, true); };
  int origin = -1;
  Because because = Because::kUnseen;
  switch (self.Class()) {
    case FindingClass::kProduce:
      because = IsHabit(self) ? Because::kHabit : Because::kMadeAssumedFinite;
      origin = own(IsHabit(self) ? Origin::Strength::kAskedFor : Origin::Strength::kMade);
      break;
    case FindingClass::kScalar:
      because = Because::kConstant;
      origin = own(Origin::Strength::kAskedFor);
      break;
    case FindingClass::kExternal:
    case FindingClass::kReceived: {
      because = Because::kCameIn;
      const bool mask = self.Class() == FindingClass::kExternal && self.kinds == wire::kHasNegInf;
      if (last == last_node_of_site_.end())
        origin = own(mask ? Origin::Strength::kAskedFor : Origin::Strength::kMade);
      break;
    }
    default:
      break;
  }
  if (origin < 0 && last != last_node_of_site_.end()) {
    // The same place as before: its chain is that of the last value that was written out.
    const ValueNode& twin = node(last->second);
    Origin restated = origins_[twin.origin];
    restated.ticket = self.ticket;
    restated.clocks = self.clocks;
    if (IsEarlierStep(*twin.clocks, *self.clocks))
      restated.record = nullptr;  // its numbers are of another step
    because = Because::kTwin;
    nodes_[static_cast<size_t>(index)].via = twin.via;
    origin = origins_.Add(restated);
  }
  if (origin < 0 && self.Class() == FindingClass::kInfToNan) {
    because = Because::kInfToNanHere;
    origin = own(Origin::Strength::kMade);
  }
  if (origin < 0) {
    because = Because::kPoisoned;
    origin = poison_.Assumed(consumer);
  }
  if (origin < 0) {
    because = Because::kUnseen;
    origin = UnseenOrigin(consumer, index, nullptr);
  }
  nodes_[static_cast<size_t>(index)].because = because;
  nodes_[static_cast<size_t>(index)].origin = origin;
  if (source.value() != 0) node_by_value_.try_emplace(source.value(), index);
  return index;
}

}  // namespace nanwatch
