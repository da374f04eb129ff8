// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/value_graph.h"

#include <algorithm>

#include "daemon/correlate/op_traits.h"
#include "daemon/correlate/wire_facts.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::Target;

uint32_t KindsOf(const ValueFact& fact, const Site* site) {
  uint32_t kinds = 0;
  for (const RecordTensor& output : fact.outputs()) {
    if (output.nan() > 0) kinds |= wire::kHasNan;
    if (output.pos_inf() > 0) kinds |= wire::kHasPosInf;
    if (output.neg_inf() > 0) kinds |= wire::kHasNegInf;
  }
  return kinds != 0 || site == nullptr ? kinds : site->kinds();
}

// Of a record's flags: why its origin is not certain.
constexpr uint32_t kUnseenFlags =
    wire::ValueRecord::kInexact | wire::ValueRecord::kUnseenInputs |
    wire::ValueRecord::kUnseenLevel | wire::ValueRecord::kUnseenMeasuring |
    wire::ValueRecord::kUnseenParent | wire::ValueRecord::kUnseenSampled |
    wire::ValueRecord::kUnseenTable;

// p.add_(g, alpha=rate), batch_norm(..., momentum=rate): arithmetic on a parameter or a buffer asks
// for no NaN in it, as filling it would, and an update for no Inf, whatever it computes.
bool UpdatesByBadNumber(const Record& record, const ValueNode& self) {
  if (self.site == nullptr) return false;
  constexpr uint32_t kWrote = wire::ValueRecord::kWroteParameter | wire::ValueRecord::kWroteBuffer;
  const bool computes = ComputesWithNumber(self.site->op());
  if (computes && IsIn(self.site, wire::Phase::kOptimizer)) return true;
  return (record.value().flags() & kWrote) != 0 && (self.kinds & wire::kHasNan) != 0 &&
         (computes || self.site->op().find("batch_norm") != std::string::npos);
}

bool ScalesInPlace(const ValueNode& node) {
  return node.site != nullptr &&
         (node.site->op() == "aten::mul_" || node.site->op() == "aten::div_");
}

}  // namespace

int ValueGraph::Add(const Record& record) {
  const ValueFact& fact = record.value();
  ValueNode self;
  self.ticket = record.ticket();
  self.site = index_.FindSite(fact.site());
  self.record = &record;
  self.clocks = &record.clocks();
  self.kinds = KindsOf(fact, self.site);
  const int index = static_cast<int>(nodes_.size());
  nodes_.push_back(self);
  if (ScalesInPlace(self) && self.kinds != wire::kHasNegInf) scaled_at_.insert(self.site->source());
  Best found = AfterBadRoot(record, index, OriginOfClass(record, index));
  if (const uint32_t unseen = fact.flags() & kUnseenFlags; unseen != 0)
    found.origin = origins_.NoLongerExact(found.origin, unseen);
  const bool nan_alone = found.origin >= 0 && origins_[found.origin].kinds == wire::kHasNan;
  // nan_to_num makes Inf of NaN, if it is asked to.
  const bool keeps_nan = self.site == nullptr || !self.site->op().starts_with("aten::nan_to_num");
  const int with_inf =
      nan_alone && keeps_nan && self.kinds != wire::kHasNan ? InfBeside(record) : -1;
  if (with_inf >= 0 && (self.kinds & wire::kHasNan) == 0)
    found.origin = origins_.NoLongerExact(with_inf, Origin::kUnseenBeside);
  ValueNode& made = nodes_[static_cast<size_t>(index)];  // looking back may have added nodes
  made.with_inf = with_inf;
  made.origin = found.origin;
  made.via = found.via;
  made.because = found.because;
  node_by_value_.try_emplace(record.ticket(), index);
  last_node_of_site_[fact.site()] = index;
  return index;
}

// A pass that began at a bad loss: what its backward ops make anew (the slope of the division that
// made the loss NaN is 0/0 too) is no second cause. No gradient of such a pass means anything,
// whatever made it. The same goes for what the layer that spoiled the loss reads in backward and
// nobody named: its own buffer, known by name only to the forward.
ValueGraph::Best ValueGraph::AfterBadRoot(const Record& record, int index, Best own) const {
  const ValueNode& self = node(index);
  if (!IsIn(self.site, wire::Phase::kBackward) || own.origin < 0) return own;
  const Best* root = FindBadRoot(record.value().pass());
  if (root == nullptr || root->origin < 0) return own;
  const Origin& lost = origins_[root->origin];
  // A loss whose own origin went unseen was bad before its pass all the same.
  const bool unseen = lost.strength == Origin::Strength::kUnseen && lost.site != nullptr;
  if (lost.strength != Origin::Strength::kMade && !unseen) return own;
  const Origin& origin = origins_[own.origin];
  const bool own_buffer = origin.CameInNameless() && Is(lost.target, Target::kBuffer) &&
                          lost.site != nullptr && lost.site->layer() == self.site->layer();
  // Another that came later in the forward is none either: the loss was lost to the first.
  const bool is_later = origin.ticket > lost.ticket && origin.strength == Origin::Strength::kMade;
  if (origin.node != index && !own_buffer && !is_later) return own;
  return {root->origin, root->via, Because::kUnderBadRoot};
}

ValueGraph::Best ValueGraph::OriginOfClass(const Record& record, int index) {
  const bool seen = Has(record.value().flags(), wire::ValueRecord::kInputsSeen);
  switch (node(index).Class()) {
    case FindingClass::kProduce: {
      // "Inputs were clean" was only assumed, and with bad parameters about it is a bad assumption.
      if (!seen && poison_.Assumed(record) >= 0) return Assumed(record);
      const bool habit = IsHabit(node(index));
      const Because clean = seen ? Because::kMadeOfFinite : Because::kMadeAssumedFinite;
      return {OwnOrigin(index, habit ? Origin::Strength::kAskedFor : Origin::Strength::kMade, true),
              -1, habit ? Because::kHabit : clean};
    }
    case FindingClass::kScalar: {
      const Sources& sources = record.value().sources();
      Best read = sources.empty() ? NumberReadBefore(record) : BestSource(record, sources, index);
      // That it is the same number is a guess.
      if (read.origin >= 0) {
        read.origin = origins_.NoLongerExact(read.origin, wire::ValueRecord::kUnseenInputs);
        return read;
      }
      const bool asked_for = !UpdatesByBadNumber(record, node(index)) && !IsScaled(node(index));
      return {
          OwnOrigin(index, asked_for ? Origin::Strength::kAskedFor : Origin::Strength::kMade, true),
          -1, Because::kConstant};
    }
    case FindingClass::kExternal:
      return OriginOfExternal(record, index);
    case FindingClass::kReceived: {
      const Best found = BestSource(record, record.value().sources(), index);
      if (found.origin >= 0 && origins_[found.origin].strength == Origin::Strength::kMade) {
        return found;
      }
      const CollectiveFact* collective = index_.FindCollectiveThatGave(record.ticket());
      if (collective != nullptr && Has(collective->flags(), wire::CollectiveRecord::kInputBad)) {
        const Best sent = FromSource(record, collective->input(), index);
        if (sent.origin >= 0) return sent;
      }
      return {OwnOrigin(index, Origin::Strength::kMade, true), -1, Because::kCameIn};
    }
    default:
      return OriginOfSpread(record, index);
  }
}

// What is scaled in place is no mask: gradients, an average. Within a module, the outermost too, it
// is a constant as any other. One of -Inf alone may be multiplied together, unless the same line
// has made something else.
bool ValueGraph::IsScaled(const ValueNode& node) const {
  return ScalesInPlace(node) && IsOutsideModules(*node.site) && !node.site->source().empty() &&
         scaled_at_.contains(node.site->source());
}

// The number that an op was given may be one that Python has read from a tensor in the same step:
// w = (a / b).item(), then w * c.
ValueGraph::Best ValueGraph::NumberReadBefore(const Record& record) const {
  const Site* site = index_.FindSite(record.value().site());
  const bool computes = site != nullptr && ComputesWithNumber(site->op());
  if (!computes || last_read_ == nullptr || IsEarlierStep(last_read_->clocks(), record.clocks())) {
    return {};
  }
  const int index = Find(last_read_->escape().source().value());
  if (index < 0) return {};
  return {node(index).origin, index, Because::kFromSource};
}

// A class that says "an input was bad": the input's origin, unless only masks came in and a NaN
// came out.
ValueGraph::Best ValueGraph::OriginOfSpread(const Record& record, int index) {
  const Best found = BestSource(record, record.value().sources(), index);
  const ValueNode& self = node(index);
  const bool inf_to_nan = self.Class() == FindingClass::kInfToNan;
  if (found.origin < 0) {
    if (inf_to_nan) {
      return {OwnOrigin(index, Origin::Strength::kMade, true), -1, Because::kInfToNanHere};
    }
    if (poison_.Assumed(record) >= 0) return Assumed(record);
    return {UnseenOrigin(record, index, nullptr), -1, Because::kUnseen};
  }
  // What has become the loss is no mask for what its pass and the update make of it.
  const bool after_loss =
      IsIn(self.site, wire::Phase::kBackward) || IsIn(self.site, wire::Phase::kOptimizer);
  if (IsMultiplied(record, found) || (after_loss && lost_.contains(found.origin))) {
    return {origins_.NoLongerMask(found.origin), found.via, found.because};
  }
  const Origin origin = origins_[found.origin];  // looking on may move them
  const bool nan_is_new = (self.kinds & wire::kHasNan) != 0 && (origin.kinds & wire::kHasNan) == 0;
  if (origin.IsMask() && nan_is_new && !inf_to_nan) {
    const Best asked_for = NanAmong(record, index);
    if (asked_for.origin >= 0) return asked_for;
    // The op has read it, so it was made neither here nor with the mask: by what nobody announces.
    if (HasReadNan(record)) return {UnseenOrigin(record, index, nullptr), -1, Because::kUnseen};
  }
  if (origin.IsMask() && (inf_to_nan || nan_is_new)) {
    Best own{OwnOrigin(index, Origin::Strength::kMade, true), found.via, Because::kNanOfMask};
    // What is taken for a mask may be a fault, then.
    if (!origin.exact) own.origin = origins_.NoLongerExact(own.origin, origin.unseen);
    return own;
  }
  // A loss that was bad before its pass began was lost by then, whoever made it; and so is an update
  // that is given a bad gradient.
  const bool was_lost = lost_.contains(found.origin) || (IsIn(self.site, wire::Phase::kOptimizer) &&
                                                         IsIn(origin.site, wire::Phase::kBackward));
  if (origin.strength == Origin::Strength::kUnseen && inf_to_nan && !was_lost) {
    return {OwnOrigin(index, Origin::Strength::kMade, false), found.via, Because::kInfToNanHere};
  }
  return found;
}

// A mask is added, filled in or compared. What came from outside and is multiplied by weights is
// data, also where it holds -Inf alone (log of 0, made where the data set is read), and a parameter
// that is multiplied is a weight.
bool ValueGraph::IsMultiplied(const Record& record, const Best& found) const {
  const Origin& origin = origins_[found.origin];
  const Site* site = index_.FindSite(record.value().site());
  const bool may_be_data = origin.CameInNameless() || Is(origin.target, Target::kParameter);
  if (!origin.IsMask() || !may_be_data || site == nullptr) return false;
  const Sources& sources = record.value().sources();
  return std::any_of(sources.begin(), sources.end(), [site](const RecordSource& source) {
    return IsFactor(site->op(), source.input());
  });
}

bool ValueGraph::HasReadNan(const Record& record) {
  const ValueFact& fact = record.value();
  return Has(fact.flags(), wire::ValueRecord::kInputsSeen) &&
         std::any_of(fact.sources().begin(), fact.sources().end(),
                     [](const RecordSource& source) { return Has(source.kinds(), wire::kHasNan); });
}

// Of several masks the one that holds NaN: padding with NaN beside scores of -Inf makes nothing
// new.
ValueGraph::Best ValueGraph::NanAmong(const Record& record, int consumer) {
  for (const RecordSource& source : record.value().sources()) {
    const Best found = FromSource(record, source, consumer);
    if (found.origin >= 0 && (origins_[found.origin].kinds & wire::kHasNan) != 0) {
      return found;
    }
  }
  return {};
}

ValueGraph::Best ValueGraph::OriginOfExternal(const Record& record, int index) {
  const Best found = BestSource(record, record.value().sources(), index);
  if (found.origin >= 0) return found;
  if (const int state = StateRead(record, record.value().target()); state >= 0) {
    return {state, -1, Because::kFromSource};
  }
  if (poison_.Assumed(record) >= 0) return Assumed(record);
  const uint32_t kinds = node(index).kinds;
  const bool mask = kinds == wire::kHasNegInf;
  return {OwnOrigin(index, mask ? Origin::Strength::kAskedFor : Origin::Strength::kMade, true), -1,
          Because::kCameIn};
}

// -Inf alone that the same place already made in an earlier step is how some masks are written (log
// of a triangle of ones): not where things went wrong. Nobody masks gradients so: there it is the
// same fault again, as where it has spoiled a loss before.
bool ValueGraph::IsHabit(const ValueNode& node) const {
  return node.kinds == wire::kHasNegInf && node.site != nullptr &&
         !IsIn(node.site, wire::Phase::kBackward) && !spoiled_losses_.contains(node.site) &&
         node.site->first_ticket() != 0 && node.site->first_ticket() < node.ticket &&
         IsEarlierStep(node.site->first_clocks(), *node.clocks);
}

bool ValueGraph::IsEarlierStep(const Clocks& a, const Clocks& b) const {
  return clock_.Read(a).iteration_of_run < clock_.Read(b).iteration_of_run;
}

int ValueGraph::Find(uint64_t value) const {
  const auto found = node_by_value_.find(value);
  return found == node_by_value_.end() ? -1 : found->second;
}

void ValueGraph::NoteBadRoot(uint64_t pass, Best root, int came_as) {
  bad_root_of_pass_[pass] = root;
  if (root.origin < 0) return;
  lost_.insert(root.origin);
  lost_.insert(came_as);
  const Origin& origin = origins_[root.origin];
  if (origin.strength == Origin::Strength::kMade) spoiled_losses_.insert(origin.site);
}

const ValueGraph::Best* ValueGraph::FindBadRoot(uint64_t pass) const {
  const auto found = bad_root_of_pass_.find(pass);
  return found == bad_root_of_pass_.end() ? nullptr : &found->second;
}

}  // namespace nanwatch
