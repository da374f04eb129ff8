// SPDX-License-Identifier: Apache-2.0
// The origins of a run's bad values, in the order in which they were found. Values name one by its
// index; what changes how an origin is to be taken makes a new one, for values before it go on
// naming the old.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/correlate/incident_key.h"
#include "daemon/correlate/origin.h"
#include "daemon/correlate/value_node.h"
#include "verdict.pb.h"

namespace nanwatch {

class OriginList {
 public:
  // `excused` must outlive the object.
  explicit OriginList(const Excused& excused) : excused_(excused) {}

  [[nodiscard]] const Origin& operator[](int index) const {
    return origins_[static_cast<size_t>(index)];
  }
  [[nodiscard]] std::vector<Origin> Take() { return std::move(origins_); }

  // All give the index of the origin; `node` is the index of the value `self`.
  int Add(Origin origin);
  // The value is its own.
  int AddOwn(const ValueNode& self, int node, Origin::Strength strength, bool exact);
  // The chain breaks off at this value, or, with null and -1, at the record, where `source` (or
  // null) went in.
  int AddUnseen(const Record& record, const ValueNode* self, int node, const RecordSource* source);
  // It came in from outside the ops: what the record `consumer` names as `source` of the value, or,
  // with null and -1, of nothing that is a value.
  int AddCameIn(const Record& consumer, const ValueNode* self, int node, const RecordSource& source,
                wire::FindingClass finding_class, Origin::Strength strength);

  int NoLongerMask(int origin);
  // It has become the loss: of all that comes of it from now on, too, it is the cause. Not of a mask
  // of -Inf, which may stand for long.
  void SetBecameLoss(int origin);
  // What came in without a name is the gradient that `leaf`, which stays, lists.
  void SetIsGradient(int origin, const RecordSource& leaf);
  int NoLongerExact(int origin, uint32_t unseen);

 private:
  const Excused& excused_;
  std::vector<Origin> origins_;
  std::map<std::pair<std::string, std::string>, int> first_reads_;  // by root and name
};

}  // namespace nanwatch
