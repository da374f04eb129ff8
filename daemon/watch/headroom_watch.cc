// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/headroom_watch.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "daemon/watch/training_alarms.h"
#include "proto/wire/element_types.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

constexpr double kNear = 0.125;  // of the type's largest number
// The level of a step without a number: the job records only what is above it.
constexpr double kRecordedFrom = 1.0 / 64;
constexpr int kRecentMax = 64;
// A leap: this many steps that rise, after as many others as are needed to know what is usual.
constexpr int kRisingSteps = 3;
constexpr int kUsualStepsMin = 5;
constexpr double kLeap = 1.5;
// A slow growth: the medians of the newest and of the oldest that are remembered.
constexpr int kNewest = 8;
constexpr int kOldest = 16;
constexpr double kGrowth = 2;

using Shares = google::protobuf::RepeatedField<double>;

double Median(Shares::const_iterator begin, Shares::const_iterator end) {
  std::vector<double> sorted(begin, end);
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

bool Leaps(const Shares& shares) {
  if (shares.size() < kUsualStepsMin + kRisingSteps) return false;
  const auto rising = shares.end() - kRisingSteps;
  return std::is_sorted(rising - 1, shares.end()) &&
         *shares.rbegin() > kLeap * *std::max_element(shares.begin(), rising);
}

bool Grows(const Shares& shares) {
  if (shares.size() < kRecentMax) return false;
  const double now = Median(shares.end() - kNewest, shares.end());
  return now >= kNear && now >= kGrowth * Median(shares.begin(), shares.begin() + kOldest);
}

}  // namespace

void WatchHeadroom(const StepSummary& step, TrainingHistory& history) {
  if (step.level() != static_cast<uint32_t>(wire::Level::kFull)) return;
  HeadroomHistory& seen = *history.mutable_headroom();
  const double limit = wire::LargestOf(static_cast<wire::ElementType>(step.near_type()));
  // Absent it is 0, and of no type.
  const bool recorded = step.near_largest() > 0 && step.near_largest() <= limit;
  const double share =
      recorded ? std::max(step.near_largest() / limit, kRecordedFrom) : kRecordedFrom;
  seen.add_shares(share);
  if (seen.shares_size() > kRecentMax) seen.mutable_shares()->erase(seen.shares().begin());
  if (seen.has_ahead()) {
    OpenAlarm& open = *seen.mutable_ahead();
    if (!HasCalmed(share < open.calm_bound(), open)) return;
    End(open, MomentOf(step), history);
    seen.clear_ahead();
    return;
  }
  if (share < kNear || !(Leaps(seen.shares()) || Grows(seen.shares()))) return;
  OpenAlarm& open = *seen.mutable_ahead();
  TrainingAlarm* alarm =
      Raise("activation-overflow-ahead", "headroom", MomentOf(step), history, open);
  open.set_calm_bound(share / 2);
  if (alarm == nullptr) return;
  alarm->set_param(step.near_layer() + " (" + step.near_op() + ")");
  auto& numbers = *alarm->mutable_numbers();
  numbers["largest"] = step.near_largest();
  numbers["limit"] = limit;
  numbers["percent"] = 100 * share;
  numbers["percent_before"] = 100 * *std::min_element(seen.shares().begin(), seen.shares().end());
  numbers["steps_seen"] = seen.shares_size();
}

}  // namespace nanwatch
