// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/unapplied_rule.h"

#include <algorithm>

#include "daemon/correlate/wire_facts.h"
#include "proto/wire/record.h"

namespace nanwatch {
namespace {

using wire::Reach;

bool IsOfUpdate(const ReachEvent& event) {
  return event.reach == Reach::kParameter || event.reach == Reach::kOptimizerState;
}

// A round of all optimizers may pass before the one whose gradient it is.
bool WentOn(const ReachEvent& gradient, const Clocks& newest) {
  return UpdatesIn(newest) >= UpdatesIn(*gradient.clocks) + RoundOf(newest);
}

bool MayHaveMade(const ReachEvent& gradient, const ReachEvent& later) {
  if (!IsOfUpdate(later) || later.ticket < gradient.ticket) return false;
  return later.origin == gradient.origin || later.clocks == nullptr ||
         UpdatesIn(*later.clocks) <= UpdatesIn(*gradient.clocks) + RoundOf(*later.clocks);
}

// The program read or tested it, and no backward pass that is known began at it.
bool IsLossThatWasRead(const ReachEvent& event) {
  return event.reach == Reach::kLoss && event.how == ReachEvent::How::kEscape;
}

// A backward pass began at it.
bool IsRoot(const ReachEvent& event) {
  return event.reach == Reach::kLoss && event.how == ReachEvent::How::kRoot && event.pass != 0;
}

// A pass was made of it that an update may have taken, or an update.
bool WasTrainedOn(const ReachEvent& loss, const ReachEvent& later) {
  if (later.reach == Reach::kGradient ||
      (later.reach == Reach::kLoss && later.how != ReachEvent::How::kEscape)) {
    return later.origin == loss.origin && !later.unapplied;
  }
  return MayHaveMade(loss, later);
}

// Between the same two updates.
bool WasReadInItsStep(const ReachEvent& loss, const std::vector<Origin>& origins,
                      const std::vector<BadRead>& reads) {
  const Site* made_at = origins[static_cast<size_t>(loss.origin)].site;
  const uint64_t updates = UpdatesIn(*loss.clocks);
  return std::any_of(reads.begin(), reads.end(), [&](const BadRead& read) {
    if (read.origin == loss.origin && UpdatesIn(*read.clocks) == updates) return true;
    // Later reads by the same place are not recorded.
    const Site* read_from =
        read.origin >= 0 ? origins[static_cast<size_t>(read.origin)].site : nullptr;
    return made_at != nullptr && read_from == made_at && UpdatesIn(*read.clocks) <= updates &&
           updates <= UpdatesIn(*read.last_clocks);
  });
}

// An update of bad gradients would have left bad parameters. Of an Inf whose gradients are finite
// nothing shows whether the update was made.
bool HasBadGradients(const ReachEvent& root, const std::vector<ReachEvent>& events) {
  return std::any_of(events.begin(), events.end(), [&root](const ReachEvent& event) {
    return event.reach == Reach::kGradient && event.pass == root.pass;
  });
}

// At level canary: torch.isfinite saw something bad between the begin of the pass and the next
// update, and no value that was known by then: what the pass had made, or a norm of it.
bool WasTestedAfter(const ReachEvent& root, const std::vector<ValueNode>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [&root](const ValueNode& node) {
    return node.site != nullptr && node.site->op() == "torch.isfinite" &&
           node.ticket > root.ticket && node.clocks != nullptr &&
           UpdatesIn(*node.clocks) == UpdatesIn(*root.clocks);
  });
}

bool IsUnapplied(const ReachEvent& event, const Clocks& newest, const std::vector<Origin>& origins,
                 const std::vector<ValueNode>& nodes, const std::vector<ReachEvent>& events,
                 const std::vector<BadRead>& reads) {
  if (event.clocks == nullptr || !WentOn(event, newest)) return false;
  const auto none = [&events, &event](bool (*made)(const ReachEvent&, const ReachEvent&)) {
    return std::none_of(events.begin(), events.end(),
                        [&](const ReachEvent& later) { return made(event, later); });
  };
  if (IsLossThatWasRead(event)) return none(&WasTrainedOn);
  if (newest.scaler_skips() != 0 || !none(&MayHaveMade)) return false;
  if (event.reach == Reach::kGradient) return true;
  if (!IsRoot(event) || event.origin < 0) return false;
  return HasBadGradients(event, events) ? WasReadInItsStep(event, origins, reads)
                                        : WasTestedAfter(event, nodes);
}

bool SwitchedInItsStep(const ReachEvent& event, const std::vector<const Record*>& records) {
  return std::any_of(records.begin(), records.end(), [&event](const Record* record) {
    if (!record->has_level()) return false;
    const auto why = static_cast<wire::LevelRecord::Why>(record->level().why());
    return (why == wire::LevelRecord::Why::kAsked || why == wire::LevelRecord::Why::kDeadline) &&
           UpdatesIn(record->clocks()) == UpdatesIn(*event.clocks);
  });
}

}  // namespace

bool UnappliedUndecided(const std::vector<ReachEvent>& events) {
  return std::any_of(events.begin(), events.end(), [](const ReachEvent& event) {
    return event.unapplied && event.perhaps_hidden;
  });
}

void MarkUnapplied(const std::vector<const Record*>& records, const Clocks& newest,
                   const std::vector<Origin>& origins, const std::vector<ValueNode>& nodes,
                   const std::vector<BadRead>& reads, std::vector<ReachEvent>& events) {
  // What was read last: it depends on what became of the pass that began at it.
  for (const bool read : {false, true}) {
    for (ReachEvent& event : events) {
      if (IsLossThatWasRead(event) != read) continue;
      event.unapplied = IsUnapplied(event, newest, origins, nodes, events, reads);
      event.perhaps_hidden = event.unapplied &&
                             (event.reach == Reach::kGradient || IsRoot(event)) &&
                             SwitchedInItsStep(event, records);
    }
  }
}

}  // namespace nanwatch
