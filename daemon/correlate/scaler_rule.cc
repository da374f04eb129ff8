// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/scaler_rule.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "daemon/correlate/op_traits.h"
#include "daemon/correlate/wire_facts.h"

namespace nanwatch {
namespace {

constexpr uint32_t kSkipsInARowMax = 10;
constexpr double kScaleMin = 1.0;

// Whether updates followed the skip at `at_skip`, and no other skip: more of them than another
// optimizer makes in the same iteration.
bool TookUpdates(const Clocks& newest, const Clocks& at_skip) {
  return newest.scaler_skips() <= at_skip.scaler_skips() + 1 &&
         newest.optimizer_ranges() >= at_skip.optimizer_ranges() + RoundOf(newest);
}

class ScalerRule {
 public:
  ScalerRule(const std::vector<Origin>& origins, std::vector<ReachEvent>& events)
      : origins_(origins), events_(events) {
    for (const ReachEvent& event : events_) {
      if (event.reach == wire::Reach::kLoss && event.pass != 0 && !IsScaling(event)) {
        bad_roots_.insert(event.pass);
      }
    }
  }

  void Decide(const ScalerFact& scaler) {
    const bool skipped = (scaler.flags() & wire::ScalerRecord::kSkipped) != 0;
    const bool scale_low = (scaler.flags() & wire::ScalerRecord::kScaleKnown) != 0 &&
                           scaler.scale_before() < kScaleMin;
    const bool too_many = scaler.skips_in_a_row() > kSkipsInARowMax;
    if (scaler.skips_in_a_row() <= 1) ExcuseStreak();
    if (too_many && !scale_low) {
      // Not all later bad passes are recorded: the last recorded one stands for them.
      if (pending_.empty()) pending_ = settled_;
      streak_.insert(streak_.end(), pending_.begin(), pending_.end());
    } else if (too_many) {
      streak_.clear();
    }
    Settle(skipped && !scale_low && !too_many);
  }

  // An update was taken: the scale was too high by more than ten halvings, and is right now. What is
  // too large leaves Inf; NaN alone has another cause.
  void ExcuseStreak() {
    for (const size_t i : streak_) {
      const ReachEvent& event = events_[i];
      const bool overflowed =
          event.origin >= 0 && origins_[static_cast<size_t>(event.origin)].kinds != wire::kHasNan;
      events_[i].excused = overflowed && IsExcusable(event);
    }
    streak_.clear();
  }

  void Settle(bool excusable) {
    for (const size_t i : pending_) events_[i].excused = excusable && IsExcusable(events_[i]);
    if (!pending_.empty()) settled_ = std::exchange(pending_, {});
  }

  // Those that no decision about was seen. `decides`: there is a scaler that would have skipped them.
  void SettleRest(bool decides) {
    for (const size_t i : pending_) {
      const bool is_scaled = scaled_.contains(events_[i].pass);
      events_[i].undecided = is_scaled && !decides;
      events_[i].excused = (decides || is_scaled) && IsExcusable(events_[i]);
    }
  }

  // The loss of this pass was scaled.
  void RecordScaled(uint64_t pass) { scaled_.insert(pass); }

  void Await(uint64_t until_ticket) {
    for (; next_ < events_.size() && events_[next_].ticket <= until_ticket; ++next_) {
      if (events_[next_].pass != 0) pending_.push_back(next_);
    }
  }

 private:
  // The root was bad only because the scale made it so: loss * scale, from a finite loss. A module's
  // own product is no scale.
  bool IsScaling(const ReachEvent& event) const {
    if (event.origin < 0 || event.node < 0) return false;
    const Origin& origin = origins_[static_cast<size_t>(event.origin)];
    return origin.node == event.node && origin.site != nullptr && Scales(origin.site->op()) &&
           origin.finding_class == wire::FindingClass::kProduce && IsOutsideModules(*origin.site);
  }

  bool IsExcusable(const ReachEvent& event) const {
    if (event.origin < 0) return false;
    if (bad_roots_.contains(event.pass)) return false;
    if (event.reach == wire::Reach::kLoss) return true;  // only scaling made it bad
    const Origin& origin = origins_[static_cast<size_t>(event.origin)];
    if (origin.site == nullptr || CameWithModel(origin) || CameWithForward(origin)) return false;
    if (Scales(origin.site->op()) && IsRootOfPass(event.pass, origin.node)) return true;
    return IsIn(origin.site, wire::Phase::kBackward) &&
           (origin.site->flags() & wire::ValueRecord::kRecompute) == 0;
  }

  // A parameter or buffer that is bad itself is so with any scale, wherever it was met first.
  static bool CameWithModel(const Origin& origin) {
    return origin.IsExternal() &&
           (origin.target == static_cast<uint32_t>(wire::Target::kParameter) ||
            origin.target == static_cast<uint32_t>(wire::Target::kBuffer));
  }

  // What a backward op reads of the forward pass is not scaled. Of an argument that is not named
  // for a gradient, that is known; of an op that forward has as well (mul), nothing is.
  static bool CameWithForward(const Origin& origin) {
    if (!origin.IsExternal() || origin.record == nullptr) return false;
    const std::string& op = origin.site->op();
    if (!op.starts_with("aten::") || op.find("_backward") == std::string::npos) return false;
    const auto& inputs = origin.record->value().inputs();
    const auto is_bad = [](const RecordTensor& input) { return BadIn(input) != 0; };
    const auto is_gradient = [](const RecordTensor& input) {
      return input.name().empty() || input.name().starts_with("grad");
    };
    return std::any_of(inputs.begin(), inputs.end(), is_bad) &&
           std::none_of(inputs.begin(), inputs.end(), [&](const RecordTensor& input) {
             return is_bad(input) && is_gradient(input);
           });
  }

  bool IsRootOfPass(uint64_t pass, int node) const {
    return std::any_of(events_.begin(), events_.end(), [&](const ReachEvent& event) {
      return event.reach == wire::Reach::kLoss && event.pass == pass && event.node == node;
    });
  }

  const std::vector<Origin>& origins_;
  std::vector<ReachEvent>& events_;
  std::set<uint64_t> bad_roots_;
  std::set<uint64_t> scaled_;    // passes
  std::vector<size_t> pending_;  // events that the scaler has not decided on yet
  std::vector<size_t> settled_;  // those of its last decision
  std::vector<size_t> streak_;   // of more skips in a row than are excused, as long as it lasts
  size_t next_ = 0;
};

}  // namespace

void ExcuseSkippedUpdates(const std::vector<const Record*>& records, const Clocks& newest,
                          const std::vector<Origin>& origins, std::vector<ReachEvent>& events) {
  ScalerRule rule(origins, events);
  bool scaler_seen = false;
  const Clocks* at_skip = nullptr;  // the last one that is recorded
  for (const Record* record : records) {
    rule.Await(record->ticket());
    if (record->has_scaler()) {
      scaler_seen = true;
      at_skip = &record->clocks();
      rule.Decide(record->scaler());
    } else if (record->has_update()) {
      const bool skipped = (record->update().flags() & wire::UpdateRecord::kSkipped) != 0;
      if (!skipped && record->update().parameters_bad() > 0) rule.Settle(false);
    } else if (record->has_pass() && (record->pass().flags() & wire::PassRecord::kScaled) != 0) {
      rule.RecordScaled(record->pass().pass());
    }
    scaler_seen |= record->clocks().scaler_skips() > 0;
  }
  rule.Await(UINT64_MAX);
  rule.SettleRest(scaler_seen);
  if (at_skip != nullptr && TookUpdates(newest, *at_skip)) rule.ExcuseStreak();
}

bool ExcusedUndecided(const std::vector<ReachEvent>& events) {
  return std::any_of(events.begin(), events.end(),
                     [](const ReachEvent& event) { return event.excused && event.undecided; });
}

bool ExcusedUnread(const std::vector<Origin>& origins, const std::vector<ReachEvent>& events) {
  return std::any_of(events.begin(), events.end(), [&origins](const ReachEvent& event) {
    if (!event.excused || event.origin < 0) return false;
    const Origin& origin = origins[static_cast<size_t>(event.origin)];
    constexpr uint32_t kUnread =
        wire::ValueRecord::kUnseenSampled | wire::ValueRecord::kUnseenWriter;
    return origin.kinds == wire::kHasNan && (origin.unseen & kUnread) != 0;
  });
}

}  // namespace nanwatch
