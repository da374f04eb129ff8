// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/origin_list.h"

#include <utility>

namespace nanwatch {

using wire::FindingClass;

int OriginList::Add(Origin origin) {
  if (!excused_.empty()) {
    const auto rule = excused_.find(ExcuseKeyOf(origin));
    origin.expected_by = rule == excused_.end() ? nullptr : &rule->second;
  }
  origins_.push_back(std::move(origin));
  return static_cast<int>(origins_.size()) - 1;
}

int OriginList::AddOwn(const ValueNode& self, int node, Origin::Strength strength, bool exact) {
  Origin origin;
  origin.strength = strength;
  origin.finding_class = self.Class();
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
  return Add(std::move(origin));
}

int OriginList::AddUnseen(const Record& record, const ValueNode* self, int node,
                          const RecordSource* source) {
  Origin origin;
  origin.strength = Origin::Strength::kUnseen;
  origin.ticket = record.ticket();
  origin.node = node;
  if (self != nullptr) {
    origin.site = self->site;
    origin.finding_class = self->Class();
    origin.kinds = self->kinds;
  }
  origin.record = self != nullptr ? self->record : &record;
  origin.clocks = &record.clocks();
  origin.source = source;
  origin.exact = false;
  return Add(std::move(origin));
}

int OriginList::AddCameIn(const Record& consumer, const ValueNode* self, int node,
                          const RecordSource& source, FindingClass finding_class,
                          Origin::Strength strength) {
  Origin origin;
  origin.strength = strength;
  origin.finding_class = finding_class;
  origin.ticket = consumer.ticket();
  origin.node = node;
  origin.site = self == nullptr ? nullptr : self->site;
  origin.record = &consumer;
  origin.clocks = &consumer.clocks();
  origin.source = &source;
  if (origin.IsExternal()) {
    origin.target = source.target();
    if (!source.name().empty()) {
      const int next = static_cast<int>(first_reads_.size());
      const std::string root = origin.site == nullptr ? "" : origin.site->root();
      origin.first_read = first_reads_.try_emplace({root, source.name()}, next).first->second;
    }
  }
  origin.kinds = source.kinds();
  if ((source.flags() & wire::Source::kWriterUnseen) != 0) {
    origin.exact = false;
    origin.unseen = wire::ValueRecord::kUnseenWriter;
  }
  return Add(std::move(origin));
}

// A constant that has become the loss is a mistake, whatever it was meant for.
void OriginList::SetBecameLoss(int origin) {
  Origin& lost = origins_[static_cast<size_t>(origin)];
  if (lost.IsMask() && lost.kinds != wire::kHasNegInf) lost.strength = Origin::Strength::kMade;
}

// p.grad = torch.from_numpy(...)
void OriginList::SetIsGradient(int origin, const RecordSource& leaf) {
  Origin& came_in = origins_[static_cast<size_t>(origin)];
  const bool is_itself = came_in.site != nullptr && came_in.site->op() == "aten::lift_fresh";
  if (!came_in.CameInNameless() || !is_itself) return;
  came_in.target = static_cast<uint32_t>(wire::Target::kGradient);
  came_in.source = &leaf;
}

int OriginList::NoLongerMask(int origin) {
  Origin restated = origins_[static_cast<size_t>(origin)];
  if (!restated.IsMask()) return origin;
  restated.strength = Origin::Strength::kMade;
  return Add(std::move(restated));
}

// What went into a value is not known for certain: nor is, of all that comes of it, the origin.
int OriginList::NoLongerExact(int origin, uint32_t unseen) {
  Origin restated = origins_[static_cast<size_t>(origin)];
  if (!restated.exact && (restated.unseen | unseen) == restated.unseen) return origin;
  restated.exact = false;
  restated.unseen |= unseen;
  return Add(std::move(restated));
}

}  // namespace nanwatch
