// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/unapplied_rule.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <unordered_set>

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

// The bad updates of a run, in the order in which they are asked for: a run has thousands of events,
// and each of them asks.
class BadUpdates {
 public:
  explicit BadUpdates(const std::vector<ReachEvent>& events) {
    for (const ReachEvent& event : events) {
      if (!IsOfUpdate(event)) continue;
      Raise(end_of_origin_[event.origin], event.ticket + 1);
      if (event.clocks == nullptr) Raise(end_without_clocks_, event.ticket + 1);
      if (event.clocks != nullptr) later_.push_back({event.ticket, BeginOf(*event.clocks)});
    }
    std::sort(later_.begin(), later_.end(),
              [](const Later& a, const Later& b) { return a.ticket < b.ticket; });
    for (size_t i = later_.size(); i > 1; --i)
      later_[i - 2].least_begin = std::min(later_[i - 2].least_begin, later_[i - 1].least_begin);
  }

  // Whether one that came after `gradient` may have been made of it.
  [[nodiscard]] bool AnyMadeOf(const ReachEvent& gradient) const {
    const auto same = end_of_origin_.find(gradient.origin);
    if (same != end_of_origin_.end() && same->second > gradient.ticket) return true;
    if (end_without_clocks_ > gradient.ticket) return true;
    const auto first =
        std::lower_bound(later_.begin(), later_.end(), gradient.ticket,
                         [](const Later& later, uint64_t ticket) { return later.ticket < ticket; });
    return first != later_.end() &&
           first->least_begin <= static_cast<int64_t>(UpdatesIn(*gradient.clocks));
  }

 private:
  struct Later {
    uint64_t ticket;
    int64_t least_begin;  // of this one and all behind it
  };

  // Updates after which its round began.
  static int64_t BeginOf(const Clocks& clocks) {
    return static_cast<int64_t>(UpdatesIn(clocks)) - static_cast<int64_t>(RoundOf(clocks));
  }
  static void Raise(uint64_t& value, uint64_t to) { value = std::max(value, to); }

  std::unordered_map<int, uint64_t> end_of_origin_;  // ticket of its last, and one
  uint64_t end_without_clocks_ = 0;
  std::vector<Later> later_;  // by ticket
};

// The program read or tested it, and no backward pass that is known began at it.
bool IsLossThatWasRead(const ReachEvent& event) {
  return event.reach == Reach::kLoss && event.how == ReachEvent::How::kEscape;
}

// A backward pass began at it.
bool IsRoot(const ReachEvent& event) {
  return event.reach == Reach::kLoss && event.how == ReachEvent::How::kRoot && event.pass != 0;
}

// A pass was made of it that an update may have taken.
bool IsTrainedPass(const ReachEvent& event) {
  return !event.unapplied &&
         (event.reach == Reach::kGradient ||
          (event.reach == Reach::kLoss && event.how != ReachEvent::How::kEscape));
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

// What all events of a run are asked about.
struct RunFactsAsked {
  const Clocks& newest;
  const std::vector<Origin>& origins;
  const std::vector<BadRead>& reads;
  BadUpdates updates;
  std::unordered_set<uint64_t> passes_with_gradients = {};
  std::unordered_set<int> origins_trained_on = {};  // once it is known what was unapplied
  std::vector<const ValueNode*> tests = {};         // by torch.isfinite
  std::unordered_set<uint64_t> updates_at_switch = {};
  std::unordered_set<uint64_t> updates_of_roots = {};  // before a pass that began at a bad loss
};

RunFactsAsked Collect(const std::vector<const Record*>& records, const Clocks& newest,
                      const std::vector<Origin>& origins, const std::vector<ValueNode>& nodes,
                      const std::vector<BadRead>& reads, const std::vector<ReachEvent>& events) {
  RunFactsAsked run{newest, origins, reads, BadUpdates(events)};
  for (const ReachEvent& event : events) {
    if (event.reach == Reach::kGradient) run.passes_with_gradients.insert(event.pass);
    if (IsRoot(event) && event.clocks != nullptr)
      run.updates_of_roots.insert(UpdatesIn(*event.clocks));
  }
  for (const ValueNode& node : nodes) {
    if (node.site != nullptr && node.clocks != nullptr && node.site->op() == "torch.isfinite")
      run.tests.push_back(&node);
  }
  for (const Record* record : records) {
    if (!record->has_level()) continue;
    const auto why = static_cast<wire::LevelRecord::Why>(record->level().why());
    if (why == wire::LevelRecord::Why::kAsked || why == wire::LevelRecord::Why::kDeadline)
      run.updates_at_switch.insert(UpdatesIn(record->clocks()));
  }
  return run;
}

// At level canary: torch.isfinite saw something bad between the begin of the pass and the next
// update, and no value that was known by then: what the pass had made, or a norm of it. Of tests
// that the same place makes later only the last is known.
bool WasTestedAfter(const ReachEvent& root, const RunFactsAsked& run) {
  const uint64_t updates = UpdatesIn(*root.clocks);
  return std::any_of(run.tests.begin(), run.tests.end(), [&](const ValueNode* test) {
    const uint64_t tested = UpdatesIn(*test->clocks);
    if (test->ticket > root.ticket) return tested == updates;
    return tested < updates && updates <= UpdatesIn(test->site->last_clocks()) &&
           run.updates_of_roots.contains(tested);
  });
}

// At level canary, the loss itself: by torch.isfinite, after its pass.
bool WasTestedItself(const ReachEvent& root, const RunFactsAsked& run) {
  const Site* site = run.origins[static_cast<size_t>(root.origin)].site;
  if (site == nullptr || !site->op().starts_with("torch.")) return false;
  const uint64_t updates = UpdatesIn(*root.clocks);
  return std::any_of(run.reads.begin(), run.reads.end(), [&](const BadRead& read) {
    return read.tested && read.origin == root.origin && UpdatesIn(*read.clocks) <= updates &&
           updates <= UpdatesIn(*read.last_clocks);
  });
}

bool IsUnapplied(const ReachEvent& event, const RunFactsAsked& run) {
  if (event.clocks == nullptr || !WentOn(event, run.newest)) return false;
  if (IsLossThatWasRead(event)) {
    return !run.origins_trained_on.contains(event.origin) && !run.updates.AnyMadeOf(event);
  }
  if (run.newest.scaler_skips() != 0 || run.updates.AnyMadeOf(event)) return false;
  if (event.reach == Reach::kGradient) return true;
  if (!IsRoot(event) || event.origin < 0) return false;
  // An update of bad gradients would have left bad parameters. Of an Inf whose gradients are finite
  // nothing shows whether the update was made, unless the program has tested it.
  return run.passes_with_gradients.contains(event.pass)
             ? WasReadInItsStep(event, run.origins, run.reads)
             : WasTestedAfter(event, run) || WasTestedItself(event, run);
}

// What the program left out before, with the same origin and reach, it has left out in its last
// step, too; but not several in a row, which may be why it ended.
void MarkLeftOutLast(const RunFactsAsked& run, std::vector<ReachEvent>& events) {
  const auto site_of = [&](const ReachEvent& event) {
    return event.origin >= 0 ? run.origins[static_cast<size_t>(event.origin)].site : nullptr;
  };
  std::set<std::pair<const Site*, Reach>> left_out;
  std::set<uint64_t> passes;
  std::vector<ReachEvent*> last;
  for (ReachEvent& event : events) {
    if (event.unapplied && site_of(event) != nullptr) left_out.emplace(site_of(event), event.reach);
    if (event.clocks == nullptr || WentOn(event, run.newest)) continue;
    last.push_back(&event);
    if (event.pass != 0) passes.insert(event.pass);
  }
  if (passes.size() > 1) return;
  for (ReachEvent* event : last) {
    const bool is_hidden = run.updates_at_switch.contains(UpdatesIn(*event->clocks));
    const bool as_before = left_out.contains({site_of(*event), event->reach});
    event->unapplied |= as_before && !is_hidden && !run.updates.AnyMadeOf(*event);
  }
}

}  // namespace

bool UnappliedUndecided(const std::vector<ReachEvent>& events) {
  return std::any_of(events.begin(), events.end(), [](const ReachEvent& event) {
    return event.unapplied && event.perhaps_hidden;
  });
}

void MarkUnapplied(const std::vector<const Record*>& records, const Clocks& newest,
                   const std::vector<Origin>& origins, const std::vector<ValueNode>& nodes,
                   const std::vector<BadRead>& reads, bool ended_well,
                   std::vector<ReachEvent>& events) {
  RunFactsAsked run = Collect(records, newest, origins, nodes, reads, events);
  // What was read last: it depends on what became of the pass that began at it.
  for (const bool read : {false, true}) {
    for (ReachEvent& event : events) {
      if (IsLossThatWasRead(event) != read) continue;
      event.unapplied = IsUnapplied(event, run);
      event.perhaps_hidden = event.unapplied &&
                             (event.reach == Reach::kGradient || IsRoot(event)) &&
                             run.updates_at_switch.contains(UpdatesIn(*event.clocks));
    }
    for (const ReachEvent& event : events) {
      if (IsTrainedPass(event)) run.origins_trained_on.insert(event.origin);
    }
  }
  if (ended_well) MarkLeftOutLast(run, events);
}

}  // namespace nanwatch
