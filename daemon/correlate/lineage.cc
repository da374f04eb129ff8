#include "daemon/correlate/lineage.h"

#include <algorithm>

#include "daemon/correlate/op_traits.h"
#include "daemon/correlate/scaler_rule.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::Reach;
using wire::SourceKind;
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

FindingClass ClassOf(const ValueNode& node) {
  return node.site == nullptr ? FindingClass::kUnknown
                              : static_cast<FindingClass>(node.site->finding_class());
}

bool Is(const RecordSource& source, SourceKind kind) {
  return source.kind() == static_cast<uint32_t>(kind);
}
bool Is(uint32_t target, Target expected) { return target == static_cast<uint32_t>(expected); }

bool Has(uint32_t flags, uint32_t flag) { return (flags & flag) != 0; }

RecordSource SourceOfValue(uint64_t value, uint32_t site) {
  RecordSource source;
  source.set_kind(static_cast<uint32_t>(SourceKind::kValue));
  source.set_value(value);
  source.set_site(site);
  return source;
}

// By counts: false where they were not written down.
bool IsNanAlone(const ValueFact& value) {
  return value.outputs_size() > 0 &&
         std::all_of(value.outputs().begin(), value.outputs().end(),
                     [](const RecordTensor& tensor) {
                       return tensor.nan() > 0 && tensor.pos_inf() == 0 && tensor.neg_inf() == 0;
                     });
}

}  // namespace

std::vector<const Record*> InTicketOrder(const RunFacts& facts) {
  std::vector<const Record*> records;
  records.reserve(static_cast<size_t>(facts.records_size()));
  for (const Record& record : facts.records()) records.push_back(&record);
  const auto by_ticket = [](const Record* a, const Record* b) { return a->ticket() < b->ticket(); };
  std::stable_sort(records.begin(), records.end(), by_ticket);
  const auto same = [](const Record* a, const Record* b) { return a->ticket() == b->ticket(); };
  records.erase(std::unique(records.begin(), records.end(), same), records.end());
  return records;
}

void Lineage::Poison::Add(const std::string& name, int origin) {
  if (any < 0) any = origin;
  if (!name.empty()) by_name.try_emplace(name, origin);
}

Lineage::Lineage(const RunFacts& facts, const Excused& excused)
    : facts_(facts), excused_(excused), clock_(facts) {
  const std::vector<const Record*> records = InTicketOrder(facts);
  Index(records);
  Walk(records);
  AddFirstReaches();
  std::stable_sort(events_.begin(), events_.end(),
                   [](const ReachEvent& a, const ReachEvent& b) { return a.ticket < b.ticket; });
  ExcuseSkippedUpdates(records, origins_, events_);
}

const Site* Lineage::FindSite(uint32_t id) const {
  const auto found = sites_.find(id);
  return found == sites_.end() ? nullptr : found->second;
}

const TrailFact* Lineage::FindTrail(uint64_t value) const {
  const auto found = trails_.find(value);
  return found == trails_.end() ? nullptr : found->second;
}

const KernelsFact* Lineage::FindKernels(uint64_t value) const {
  const auto found = kernels_.find(value);
  return found == kernels_.end() ? nullptr : found->second;
}

void Lineage::Index(const std::vector<const Record*>& records) {
  for (const Site& site : facts_.sites()) sites_.try_emplace(site.id(), &site);
  for (const Record* record : records) {
    if (record->has_collective()) {
      const CollectiveFact& fact = record->collective();
      if (fact.output_value() != 0) collective_by_output_.try_emplace(fact.output_value(), &fact);
      collective_by_sequence_.try_emplace({fact.group(), fact.sequence()}, &fact);
    } else if (record->has_pass() && !record->pass().root_op().empty()) {
      roots_.insert({record->pass().root_op(), record->pass().root_layer()});
    } else if (record->has_trail()) {
      trails_.try_emplace(record->trail().value(), &record->trail());
    } else if (record->has_kernels()) {
      kernels_.try_emplace(record->kernels().value(), &record->kernels());
    }
  }
}

void Lineage::Walk(const std::vector<const Record*>& records) {
  for (const Record* record : records) {
    switch (record->fact_case()) {
      case Record::kValue:
        OnValue(*record);
        break;
      case Record::kPass:
        OnPass(*record);
        break;
      case Record::kUpdate:
        OnUpdate(*record);
        break;
      case Record::kEscape:
        OnEscape(*record);
        break;
      case Record::kCollective:
        OnCollective(*record);
        break;
      default:
        break;
    }
  }
}

// ---- values
// -----------------------------------------------------------------------------------------

void Lineage::OnValue(const Record& record) {
  const ValueFact& fact = record.value();
  ValueNode node;
  node.ticket = record.ticket();
  node.site = FindSite(fact.site());
  node.record = &record;
  node.clocks = &record.clocks();
  node.kinds = KindsOf(fact, node.site);
  const int index = static_cast<int>(nodes_.size());
  nodes_.push_back(node);
  Best found = AfterBadRoot(record, index, OriginOfClass(record, index));
  if (Has(fact.flags(), wire::ValueRecord::kInexact)) found.origin = NoLongerExact(found.origin);
  nodes_[static_cast<size_t>(index)].origin = found.origin;  // looking back may have added nodes
  nodes_[static_cast<size_t>(index)].via = found.via;
  nodes_[static_cast<size_t>(index)].because = found.because;
  node_by_value_.try_emplace(record.ticket(), index);
  last_node_of_site_[fact.site()] = index;

  const bool deliberate = origins_[static_cast<size_t>(found.origin)].IsMask() &&
                          !Has(fact.flags(), wire::ValueRecord::kInOptimizerRange);
  const auto reached = [&](uint32_t flag, Reach reach) {
    if (!Has(fact.flags(), flag)) return;
    AddEvent({.reach = reach,
              .ticket = record.ticket(),
              .clocks = &record.clocks(),
              .node = index,
              .origin = found.origin,
              .name = fact.param(),
              .how = ReachEvent::How::kWrite,
              .deliberate = deliberate});
    if (deliberate) return;
    if (reach == Reach::kParameter) PoisonParameters(record, fact.param(), found.origin);
    if (reach == Reach::kBuffer) buffers_.Add(fact.param(), found.origin);
  };
  reached(wire::ValueRecord::kWroteParameter, Reach::kParameter);
  reached(wire::ValueRecord::kWroteOptimizerState, Reach::kOptimizerState);
  reached(wire::ValueRecord::kWroteBuffer, Reach::kBuffer);
}

// A pass that began at a bad loss: what its backward ops make anew (the slope of the division that
// made the loss NaN is 0/0 too) is no second cause. No gradient of such a pass means anything,
// whatever made it. The same goes for what the layer that spoiled the loss reads in backward and
// nobody named: its own buffer, known by name only to the forward.
Lineage::Best Lineage::AfterBadRoot(const Record& record, int node, Best own) const {
  const ValueNode& self = nodes_[static_cast<size_t>(node)];
  if (self.site == nullptr || self.site->phase() != static_cast<uint32_t>(wire::Phase::kBackward) ||
      own.origin < 0) {
    return own;
  }
  const auto root = bad_root_of_pass_.find(record.value().pass());
  if (root == bad_root_of_pass_.end() || root->second.origin < 0) return own;
  const Origin& lost = origins_[static_cast<size_t>(root->second.origin)];
  // A loss whose own origin went unseen was bad before its pass all the same.
  const bool unseen = lost.strength == Origin::Strength::kUnseen && lost.site != nullptr;
  if (lost.strength != Origin::Strength::kMade && !unseen) return own;
  const Origin& origin = origins_[static_cast<size_t>(own.origin)];
  const bool nameless = origin.IsExternal() &&
                        (Is(origin.target, Target::kNone) || Is(origin.target, Target::kInputData));
  const bool own_buffer = nameless && Is(lost.target, Target::kBuffer) && lost.site != nullptr &&
                          lost.site->layer() == self.site->layer();
  if (origin.node != node && !own_buffer) return own;
  return {root->second.origin, root->second.via, Because::kUnderBadRoot};
}

Lineage::Best Lineage::OriginOfClass(const Record& record, int node) {
  const bool seen = Has(record.value().flags(), wire::ValueRecord::kInputsSeen);
  switch (ClassOf(nodes_[static_cast<size_t>(node)])) {
    case FindingClass::kProduce: {
      // "Inputs were clean" was only assumed, and with bad parameters about it is a bad assumption.
      if (!seen && AssumedPoison(record) >= 0) return Assumed(record);
      const bool habit = IsHabit(nodes_[static_cast<size_t>(node)]);
      const Because clean = seen ? Because::kMadeOfFinite : Because::kMadeAssumedFinite;
      return {OwnOrigin(node, habit ? Origin::Strength::kAskedFor : Origin::Strength::kMade, true),
              -1, habit ? Because::kHabit : clean};
    }
    case FindingClass::kScalar:
      return {OwnOrigin(node, Origin::Strength::kAskedFor, true), -1, Because::kConstant};
    case FindingClass::kExternal:
      return OriginOfExternal(record, node);
    case FindingClass::kReceived: {
      const Best found = BestSource(record, record.value().sources(), node);
      if (found.origin >= 0 &&
          origins_[static_cast<size_t>(found.origin)].strength == Origin::Strength::kMade) {
        return found;
      }
      const auto collective = collective_by_output_.find(record.ticket());
      if (collective != collective_by_output_.end() &&
          Has(collective->second->flags(), wire::CollectiveRecord::kInputBad)) {
        const Best sent = FromSource(record, collective->second->input(), node);
        if (sent.origin >= 0) return sent;
      }
      return {OwnOrigin(node, Origin::Strength::kMade, true), -1, Because::kCameIn};
    }
    default:
      return OriginOfSpread(record, node);
  }
}

// A class that says "an input was bad": the input's origin, unless only masks came in and a NaN
// came out.
Lineage::Best Lineage::OriginOfSpread(const Record& record, int node) {
  const Best found = BestSource(record, record.value().sources(), node);
  const ValueNode& self = nodes_[static_cast<size_t>(node)];
  const bool inf_to_nan = ClassOf(self) == FindingClass::kInfToNan;
  if (found.origin < 0) {
    if (inf_to_nan) {
      return {OwnOrigin(node, Origin::Strength::kMade, true), -1, Because::kInfToNanHere};
    }
    if (AssumedPoison(record) >= 0) return Assumed(record);
    return {UnseenOrigin(record, node, nullptr), -1, Because::kUnseen};
  }
  const Origin origin = origins_[static_cast<size_t>(found.origin)];  // looking on may move them
  const bool nan_is_new = (self.kinds & wire::kHasNan) != 0 && (origin.kinds & wire::kHasNan) == 0;
  if (origin.IsMask() && nan_is_new && !inf_to_nan) {
    const Best asked_for = NanAmong(record, node);
    if (asked_for.origin >= 0) return asked_for;
  }
  if (origin.IsMask() && (inf_to_nan || nan_is_new)) {
    return {OwnOrigin(node, Origin::Strength::kMade, true), found.via, Because::kNanOfMask};
  }
  if (origin.strength == Origin::Strength::kUnseen && inf_to_nan) {
    return {OwnOrigin(node, Origin::Strength::kMade, false), found.via, Because::kInfToNanHere};
  }
  return found;
}

// Of several masks the one that holds NaN: padding with NaN beside scores of -Inf makes nothing
// new.
Lineage::Best Lineage::NanAmong(const Record& record, int consumer) {
  for (const RecordSource& source : record.value().sources()) {
    const Best found = FromSource(record, source, consumer);
    if (found.origin >= 0 &&
        (origins_[static_cast<size_t>(found.origin)].kinds & wire::kHasNan) != 0) {
      return found;
    }
  }
  return {};
}

Lineage::Best Lineage::OriginOfExternal(const Record& record, int node) {
  const Best found = BestSource(record, record.value().sources(), node);
  if (found.origin >= 0) return found;
  if (AssumedPoison(record) >= 0) return Assumed(record);
  const uint32_t kinds = nodes_[static_cast<size_t>(node)].kinds;
  const bool mask = kinds == wire::kHasNegInf;
  return {OwnOrigin(node, mask ? Origin::Strength::kAskedFor : Origin::Strength::kMade, true), -1,
          Because::kCameIn};
}

// -Inf alone that the same place already made in an earlier step is how some masks are written (log
// of a triangle of ones): not where things went wrong.
bool Lineage::IsHabit(const ValueNode& node) const {
  return node.kinds == wire::kHasNegInf && node.site != nullptr && node.site->first_ticket() != 0 &&
         node.site->first_ticket() < node.ticket &&
         IsEarlierStep(node.site->first_clocks(), *node.clocks);
}

bool Lineage::IsEarlierStep(const Clocks& a, const Clocks& b) const {
  return clock_.Read(a).iteration_of_run < clock_.Read(b).iteration_of_run;
}

// ---- sources
// ----------------------------------------------------------------------------------------

Lineage::Best Lineage::BestSource(const Record& record,
                                  const google::protobuf::RepeatedPtrField<RecordSource>& sources,
                                  int consumer) {
  Best best;
  // Where NaN alone came out, the NaN that went in tells why, whatever mask of -Inf went in beside
  // it. With Inf left in the result, each may live on in a part of it.
  const bool only_nan = record.has_value() && IsNanAlone(record.value()) &&
                        std::any_of(sources.begin(), sources.end(), [](const RecordSource& source) {
                          return Has(source.kinds(), wire::kHasNan);
                        });
  for (const RecordSource& source : sources) {
    if (only_nan && source.kinds() == wire::kHasNegInf) continue;
    const Best found = FromSource(record, source, consumer);
    if (found.origin < 0) continue;
    if (best.origin < 0 || Explains(origins_[static_cast<size_t>(found.origin)],
                                    origins_[static_cast<size_t>(best.origin)])) {
      best = found;
    }
  }
  return best;
}

Lineage::Best Lineage::FromSource(const Record& record, const RecordSource& source, int consumer) {
  if (Is(source, SourceKind::kValue)) {
    const int node = ResolveValue(source, record);
    if (node >= 0 && node != consumer) {
      return {nodes_[static_cast<size_t>(node)].origin, node, Because::kFromSource};
    }
  } else if (Is(source, SourceKind::kExternal)) {
    return FromExternal(record, source, consumer);
  } else if (Is(source, SourceKind::kCollective)) {
    return FromCollective(record, source, consumer);
  } else if (Is(source, SourceKind::kNone)) {
    return {};
  }
  if (AssumedPoison(record) >= 0) return Assumed(record);
  return {UnseenOrigin(record, consumer, &source), -1, Because::kUnseen};
}

Lineage::Best Lineage::FromExternal(const Record& record, const RecordSource& source,
                                    int consumer) {
  const int inherited = Inherited(record, source.target(), source.name());
  if (inherited >= 0) return {inherited, -1, Because::kFromSource};
  Origin origin;
  origin.strength = Origin::Strength::kMade;
  if (source.kinds() == wire::kHasNegInf) origin.strength = Origin::Strength::kAskedFor;
  if (Is(source.target(), Target::kUninitialised))
    origin.strength = Origin::Strength::kUninitialised;
  origin.finding_class = FindingClass::kExternal;
  origin.ticket = record.ticket();
  origin.node = consumer;
  origin.site = consumer < 0 ? nullptr : nodes_[static_cast<size_t>(consumer)].site;
  origin.record = &record;
  origin.clocks = &record.clocks();
  origin.source = &source;
  origin.target = source.target();
  origin.kinds = source.kinds();
  return {AddOrigin(origin), -1, Because::kCameIn};
}

Lineage::Best Lineage::FromCollective(const Record& record, const RecordSource& source,
                                      int consumer) {
  const auto found = collective_by_sequence_.find({source.name(), source.value()});
  if (found != collective_by_sequence_.end() &&
      Has(found->second->flags(), wire::CollectiveRecord::kInputBad)) {
    const Best sent = FromSource(record, found->second->input(), consumer);
    if (sent.origin >= 0) return sent;
  }
  Origin origin;
  origin.strength = Origin::Strength::kMade;
  origin.finding_class = FindingClass::kReceived;
  origin.ticket = record.ticket();
  origin.node = consumer;
  origin.site = consumer < 0 ? nullptr : nodes_[static_cast<size_t>(consumer)].site;
  origin.record = &record;
  origin.clocks = &record.clocks();
  origin.source = &source;
  origin.kinds = source.kinds();
  return {AddOrigin(origin), -1, Because::kCameIn};
}

// The origin of what made this long-lived tensor bad, if an earlier record told; else -1.
int Lineage::Inherited(const Record& record, uint32_t target, const std::string& name) const {
  const auto named = [&](const Poison& poison) {
    const auto found = poison.by_name.find(name);
    return found == poison.by_name.end() ? -1 : found->second;
  };
  if (Is(target, Target::kInputData)) return -1;
  if (Is(target, Target::kBuffer) && named(buffers_) >= 0) return named(buffers_);
  if (Is(target, Target::kParameter) && named(parameters_) >= 0) return named(parameters_);
  if (Is(target, Target::kGradient) && gradients_.any >= 0) {
    return named(gradients_) >= 0 ? named(gradients_) : gradients_.any;
  }
  // Only the first few bad names are recorded.
  return Is(target, Target::kParameter) ? parameters_.any : AssumedPoison(record);
}

// The job writes no values while it knows that parameters are bad. One of a later step says that
// they are clean again, whatever the last update left.
int Lineage::AssumedPoison(const Record& record) const {
  if (parameters_.any < 0 || clock_.Read(record.clocks()).iteration_of_run > poisoned_in_)
    return -1;
  return parameters_.any;
}

Lineage::Best Lineage::Assumed(const Record& record) const {
  return {AssumedPoison(record), -1, Because::kPoisoned};
}

void Lineage::PoisonParameters(const Record& record, const std::string& name, int origin) {
  const int64_t iteration = clock_.Read(record.clocks()).iteration_of_run;
  if (parameters_.any < 0 || iteration > poisoned_in_) {
    parameters_ = Poison();
    poisoned_in_ = iteration;
  }
  parameters_.Add(name, origin);
}

int Lineage::ResolveValue(const RecordSource& source, const Record& consumer) {
  const auto found = node_by_value_.find(source.value());
  if (found != node_by_value_.end()) return found->second;
  const Site* site = FindSite(source.site());
  if (site == nullptr || source.value() > consumer.ticket()) return -1;
  return AddSuppressed(source, *site, consumer);
}

int Lineage::AddSuppressed(const RecordSource& source, const Site& site, const Record& consumer) {
  ValueNode node;
  node.ticket = source.value() != 0 ? source.value() : consumer.ticket();
  node.site = &site;
  node.clocks = &consumer.clocks();  // what it was consumed in: the step it was made in, or later
  node.kinds = source.kinds() != 0 ? source.kinds() : site.kinds();
  const int index = static_cast<int>(nodes_.size());
  nodes_.push_back(node);
  const auto last = last_node_of_site_.find(site.id());
  const auto own = [&](Origin::Strength strength) { return OwnOrigin(index, strength, true); };
  int origin = -1;
  Because because = Because::kUnseen;
  switch (ClassOf(node)) {
    case FindingClass::kProduce:
      because = IsHabit(node) ? Because::kHabit : Because::kMadeAssumedFinite;
      origin = own(IsHabit(node) ? Origin::Strength::kAskedFor : Origin::Strength::kMade);
      break;
    case FindingClass::kScalar:
      because = Because::kConstant;
      origin = own(Origin::Strength::kAskedFor);
      break;
    case FindingClass::kExternal:
    case FindingClass::kReceived:
      because = Because::kCameIn;
      if (last == last_node_of_site_.end()) origin = own(Origin::Strength::kMade);
      break;
    default:
      break;
  }
  if (origin < 0 && last != last_node_of_site_.end()) {
    // The same place as before: its chain is that of the last value that was written out.
    const ValueNode& twin = nodes_[static_cast<size_t>(last->second)];
    Origin restated = origins_[static_cast<size_t>(twin.origin)];
    restated.ticket = node.ticket;
    restated.clocks = node.clocks;
    if (IsEarlierStep(*twin.clocks, *node.clocks))
      restated.record = nullptr;  // its numbers are of another step
    because = Because::kTwin;
    nodes_[static_cast<size_t>(index)].via = twin.via;
    origin = AddOrigin(restated);
  }
  if (origin < 0 && ClassOf(node) == FindingClass::kInfToNan) {
    because = Because::kInfToNanHere;
    origin = own(Origin::Strength::kMade);
  }
  if (origin < 0) {
    because = Because::kPoisoned;
    origin = AssumedPoison(consumer);
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

// ---- origins
// ----------------------------------------------------------------------------------------

int Lineage::AddOrigin(Origin origin) {
  if (!excused_.empty()) {
    const auto rule = excused_.find(ExcuseKeyOf(origin));
    origin.expected_by = rule == excused_.end() ? nullptr : &rule->second;
  }
  origins_.push_back(std::move(origin));
  return static_cast<int>(origins_.size()) - 1;
}

int Lineage::OwnOrigin(int node, Origin::Strength strength, bool exact) {
  const ValueNode& self = nodes_[static_cast<size_t>(node)];
  Origin origin;
  origin.strength = strength;
  origin.finding_class = ClassOf(self);
  if (origin.finding_class == FindingClass::kPropagate ||
      origin.finding_class == FindingClass::kUnknown) {
    // It was recorded as passing on a mask, and made a NaN.
    origin.finding_class = FindingClass::kInfToNan;
  }
  origin.ticket = self.ticket;
  origin.node = node;
  origin.site = self.site;
  origin.record = self.record;
  origin.clocks = self.clocks;
  origin.kinds = self.kinds;
  origin.exact = exact;
  if (self.record != nullptr && origin.IsExternal()) origin.target = self.record->value().target();
  return AddOrigin(origin);
}

int Lineage::UnseenOrigin(const Record& record, int node, const RecordSource* source) {
  Origin origin;
  origin.strength = Origin::Strength::kUnseen;
  origin.ticket = record.ticket();
  origin.node = node;
  if (node >= 0) {
    origin.site = nodes_[static_cast<size_t>(node)].site;
    origin.finding_class = ClassOf(nodes_[static_cast<size_t>(node)]);
    origin.kinds = nodes_[static_cast<size_t>(node)].kinds;
  }
  origin.record = node >= 0 ? nodes_[static_cast<size_t>(node)].record : &record;
  origin.clocks = &record.clocks();
  origin.source = source;
  origin.exact = false;
  return AddOrigin(origin);
}

// ---- reach
// ------------------------------------------------------------------------------------------

void Lineage::AddEvent(ReachEvent event) { events_.push_back(std::move(event)); }

void Lineage::AddEventsOf(const Record& record, Reach reach,
                          const google::protobuf::RepeatedPtrField<RecordSource>& bad,
                          uint32_t count, int fallback) {
  bool any = false;
  const ReachEvent::How how =
      reach == Reach::kGradient ? ReachEvent::How::kLeaf : ReachEvent::How::kUpdate;
  for (const RecordSource& source : bad) {
    const bool is_state = Is(source.target(), Target::kOptimizerState);
    if (reach == Reach::kParameter && is_state) continue;
    if (reach == Reach::kOptimizerState && !is_state) continue;
    Best found;
    if (!Is(source, SourceKind::kUnknown) || fallback < 0) found = FromSource(record, source, -1);
    if (found.origin < 0) found.origin = fallback;
    if (found.origin < 0) found.origin = UnseenOrigin(record, -1, &source);
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
  const int origin = fallback >= 0 ? fallback : UnseenOrigin(record, -1, nullptr);
  AddEvent({.reach = reach,
            .ticket = record.ticket(),
            .clocks = &record.clocks(),
            .origin = origin,
            .how = how,
            .count = count});
}

void Lineage::OnPass(const Record& record) {
  const PassFact& pass = record.pass();
  const size_t first = events_.size();
  const bool root_bad = pass.root_value() != 0 || pass.root_site() != 0 ||
                        Has(pass.flags(), wire::PassRecord::kRootBad);
  if (root_bad && !bad_root_of_pass_.contains(pass.pass())) {
    const RecordSource root = SourceOfValue(pass.root_value(), pass.root_site());
    const int node = ResolveValue(root, record);
    int origin = node >= 0 ? nodes_[static_cast<size_t>(node)].origin : AssumedPoison(record);
    if (origin < 0) origin = UnseenOrigin(record, -1, nullptr);
    origin = NoLongerMask(origin);
    AddEvent({.reach = Reach::kLoss,
              .ticket = record.ticket(),
              .clocks = &record.clocks(),
              .node = node,
              .origin = origin});
    bad_root_of_pass_[pass.pass()] = {origin, node};
  }
  const bool leaf_bad =
      pass.leaves_bad() > 0 || pass.bad_size() > 0 || Has(pass.flags(), wire::PassRecord::kLeafBad);
  if (leaf_bad) {
    const auto root = bad_root_of_pass_.find(pass.pass());
    const int fallback =
        root != bad_root_of_pass_.end() ? root->second.origin : AssumedPoison(record);
    AddEventsOf(record, Reach::kGradient, pass.bad(), pass.leaves_bad(), fallback);
  }
  for (size_t i = first; i < events_.size(); ++i) {
    events_[i].pass = pass.pass();
    if (events_[i].reach == Reach::kGradient) gradients_.Add(events_[i].name, events_[i].origin);
  }
}

// A constant that has become the loss is a mistake, whatever it was meant for: of its gradients
// none is its own cause.
int Lineage::NoLongerMask(int origin) {
  Origin restated = origins_[static_cast<size_t>(origin)];
  if (!restated.IsMask()) return origin;
  restated.strength = Origin::Strength::kMade;
  return AddOrigin(restated);
}

// What went into a value is not known for certain: nor is, of all that comes of it, the origin.
int Lineage::NoLongerExact(int origin) {
  Origin restated = origins_[static_cast<size_t>(origin)];
  if (!restated.exact) return origin;
  restated.exact = false;
  return AddOrigin(restated);
}

// The gradients an update was made of are those of the passes since the last one.
int Lineage::LastGradientOrigin() const {
  for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
    if (event->reach == Reach::kGradient) return event->origin;
  }
  return -1;
}

void Lineage::OnUpdate(const Record& record) {
  const UpdateFact& update = record.update();
  const bool nothing_bad = update.parameters_bad() == 0 && update.states_bad() == 0;
  if (Has(update.flags(), wire::UpdateRecord::kSkipped)) return;
  if (nothing_bad) {
    // Somebody loaded a checkpoint, or never let the gradients in: what comes next is a new story.
    if (Has(update.flags(), wire::UpdateRecord::kScanned)) parameters_ = Poison();
    gradients_ = Poison();
    return;
  }
  const int assumed = AssumedPoison(record);
  const int fallback = assumed >= 0 ? assumed : LastGradientOrigin();
  const size_t first = events_.size();
  if (update.parameters_bad() > 0) {
    AddEventsOf(record, Reach::kParameter, update.bad(), update.parameters_bad(), fallback);
  }
  if (update.states_bad() > 0) {
    const int of_parameters = events_.size() > first ? events_[first].origin : fallback;
    AddEventsOf(record, Reach::kOptimizerState, update.bad(), update.states_bad(), of_parameters);
  }
  for (size_t i = first; i < events_.size(); ++i) {
    if (events_[i].reach != Reach::kParameter) continue;
    PoisonParameters(record, events_[i].name, events_[i].origin);
  }
}

// A number that Python read, or the program compared with another, is the loss if backward roots
// are made at the same place. A metric may be made by the same op there (the mean over one class),
// but needs no gradient: no pass could begin at it. Without its record nobody knows.
void Lineage::OnEscape(const Record& record) {
  const EscapeFact& escape = record.escape();
  if (!Is(escape.source(), SourceKind::kValue)) return;
  const int node = ResolveValue(escape.source(), record);
  if (node < 0) return;
  const Site* site = nodes_[static_cast<size_t>(node)].site;
  const Record* made = nodes_[static_cast<size_t>(node)].record;
  if (made != nullptr && !Has(made->value().flags(), wire::ValueRecord::kNeedsGradient)) return;
  const bool is_root = site != nullptr && roots_.contains({site->op(), site->layer()});
  if (!is_root && !Has(escape.flags(), 1)) return;
  AddEvent({.reach = Reach::kLoss,
            .ticket = record.ticket(),
            .clocks = &record.clocks(),
            .node = node,
            .origin = nodes_[static_cast<size_t>(node)].origin,
            .how = ReachEvent::How::kEscape});
}

void Lineage::OnCollective(const Record& record) {
  const CollectiveFact& fact = record.collective();
  if (!Has(fact.flags(), wire::CollectiveRecord::kInputBad)) return;
  const Best found = FromSource(record, fact.input(), -1);
  if (found.origin >= 0) sendings_.push_back({fact.group(), fact.sequence(), found.origin});
}

// The section that nothing evicts: it stands in for the records that were lost. Gradients are left
// out, because without its pass nobody knows whether a scaler took care of one.
void Lineage::AddFirstReaches() {
  for (const FirstReachFact& fact : facts_.reach()) {
    const auto reach = static_cast<Reach>(fact.reach());
    if (fact.reach() > static_cast<uint32_t>(Reach::kBuffer)) continue;
    if (reach == Reach::kActivation || reach == Reach::kGradient) continue;
    const bool told = std::any_of(events_.begin(), events_.end(),
                                  [&](const ReachEvent& event) { return event.reach == reach; });
    const auto node = node_by_value_.find(fact.value());
    if (told || node == node_by_value_.end()) continue;
    const int origin = nodes_[static_cast<size_t>(node->second)].origin;
    AddEvent({.reach = reach,
              .ticket = fact.ticket(),
              .clocks = &fact.clocks(),
              .node = node->second,
              .origin = origin,
              .name = fact.name(),
              .how = ReachEvent::How::kFirstReach,
              .deliberate = origins_[static_cast<size_t>(origin)].IsMask()});
  }
}

}  // namespace nanwatch
