// SPDX-License-Identifier: Apache-2.0
// Where the bad values of a run came from: for each, the source that leads to its origin.
//
// Values are added in ticket order, and edges only point to smaller tickets, so that one pass is
// enough and a forged cycle cannot be walked. A value without a record is known by its site at
// most; it becomes a node of its own that takes its place in the chain from the last recorded value
// of that site.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "daemon/correlate/fact_index.h"
#include "daemon/correlate/incident_key.h"
#include "daemon/correlate/origin_list.h"
#include "daemon/correlate/poisoned_tensors.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/value_node.h"
#include "verdict.pb.h"

namespace nanwatch {

class ValueGraph {
 public:
  // The best explanation found: an origin, and the node on the way to it.
  struct Best {
    int origin = -1;  // -1: none
    int via = -1;
    Because because = Because::kUnseen;
  };
  using Sources = google::protobuf::RepeatedPtrField<RecordSource>;

  // All must outlive the object.
  ValueGraph(const FactIndex& index, const StepClock& clock, const Excused& excused)
      : index_(index), clock_(clock), poison_(clock), origins_(excused) {}

  // The index of the new node.
  int Add(const Record& record);

  // The node that a source names, which may be new; -1: it names none that is known.
  int Resolve(const RecordSource& source, const Record& consumer);
  // `consumer`: the node that the source went into; -1: what is no value.
  Best FromSource(const Record& record, const RecordSource& source, int consumer);
  // The node with this ticket; -1: none.
  [[nodiscard]] int Find(uint64_t value) const;

  // Python has read a bad number; the record must outlive the object.
  void NoteRead(const Record& escape) { last_read_ = &escape; }

  // A backward pass began at a bad loss. Null: the pass did not, as far as is known.
  void NoteBadRoot(uint64_t pass, Best root, int came_as);
  [[nodiscard]] const Best* FindBadRoot(uint64_t pass) const;

  [[nodiscard]] const ValueNode& node(int index) const {
    return nodes_[static_cast<size_t>(index)];
  }
  [[nodiscard]] PoisonedTensors& poison() { return poison_; }
  [[nodiscard]] OriginList& origins() { return origins_; }
  [[nodiscard]] std::vector<ValueNode> TakeNodes() { return std::move(nodes_); }

 private:
  Best BestSource(const Record& record, const Sources& sources, int consumer);
  [[nodiscard]] bool MayBeReadInPart(const Record& record) const;
  [[nodiscard]] int InfBeside(const Record& record) const;
  [[nodiscard]] bool IsOfStep(const Origin& origin, const Record& record) const;
  [[nodiscard]] bool IsIdleBuffer(int index, const Record& record) const;
  Best FromExternal(const Record& record, const RecordSource& source, int consumer);
  Best FromCollective(const Record& record, const RecordSource& source, int consumer);
  [[nodiscard]] bool IsUncheckedUpdate(const Record& record) const;
  // The origin of an optimizer's state that the record's op has read, by what is known of it.
  [[nodiscard]] int StateRead(const Record& record, uint32_t target) const;
  Best Assumed(const Record& record) const;
  int AddSuppressed(const RecordSource& source, const Site& site, const Record& consumer);
  Best AfterBadRoot(const Record& record, int index, Best own) const;
  Best OriginOfClass(const Record& record, int index);
  Best OriginOfSpread(const Record& record, int index);
  // Whether the inputs of its op were read, and held NaN.
  [[nodiscard]] static bool HasReadNan(const Record& record);
  Best NanAmong(const Record& record, int consumer);
  bool IsMultiplied(const Record& record, const Best& found) const;
  [[nodiscard]] bool IsScaled(const ValueNode& node) const;
  Best NumberReadBefore(const Record& record) const;
  Best OriginOfExternal(const Record& record, int index);
  int OwnOrigin(int index, Origin::Strength strength, bool exact) {
    return origins_.AddOwn(node(index), index, strength, exact);
  }
  int UnseenOrigin(const Record& record, int index, const RecordSource* source) {
    return origins_.AddUnseen(record, NodeOrNull(index), index, source);
  }
  [[nodiscard]] const ValueNode* NodeOrNull(int index) const {
    return index < 0 ? nullptr : &node(index);
  }
  [[nodiscard]] bool IsHabit(const ValueNode& node) const;
  [[nodiscard]] bool IsEarlierStep(const Clocks& a, const Clocks& b) const;

  const FactIndex& index_;
  const StepClock& clock_;
  PoisonedTensors poison_;
  OriginList origins_;
  std::vector<ValueNode> nodes_;
  std::unordered_map<uint64_t, int> node_by_value_;
  std::unordered_map<uint32_t, int> last_node_of_site_;
  const Record* last_read_ = nullptr;
  int collectives_followed_ = 0;                         // each was given what the next one brought
  std::unordered_map<uint64_t, Best> bad_root_of_pass_;  // and where that came from
  std::unordered_set<int> lost_;                         // origins of bad roots
  std::set<std::string> scaled_at_;                      // lines that scaled something to be bad
  std::set<const Site*> spoiled_losses_;                 // what it made was a bad root's origin
};

}  // namespace nanwatch
