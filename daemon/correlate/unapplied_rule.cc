// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/unapplied_rule.h"

#include <algorithm>

namespace nanwatch {
namespace {

using wire::Reach;

uint64_t UpdatesIn(const Clocks& clocks) {
  return uint64_t{clocks.optimizer_ranges()} + clocks.plain_updates();
}

// A round of all optimizers may pass before the one whose gradient it is.
uint64_t RoundOf(const Clocks& clocks) { return std::max(1u, clocks.optimizer_count()); }

bool IsOfUpdate(const ReachEvent& event) {
  return event.reach == Reach::kParameter || event.reach == Reach::kOptimizerState;
}

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

// A pass was made of it, or an update.
bool WasTrainedOn(const ReachEvent& loss, const ReachEvent& later) {
  const bool of_pass = later.reach == Reach::kGradient ||
                       (later.reach == Reach::kLoss && later.how != ReachEvent::How::kEscape);
  if (of_pass) return later.origin == loss.origin;
  return MayHaveMade(loss, later);
}

bool IsUnapplied(const ReachEvent& event, const Clocks& newest,
                 const std::vector<ReachEvent>& events) {
  if (event.clocks == nullptr || !WentOn(event, newest)) return false;
  const auto none = [&events, &event](bool (*made)(const ReachEvent&, const ReachEvent&)) {
    return std::none_of(events.begin(), events.end(),
                        [&](const ReachEvent& later) { return made(event, later); });
  };
  if (IsLossThatWasRead(event)) return none(&WasTrainedOn);
  return event.reach == Reach::kGradient && newest.scaler_skips() == 0 && none(&MayHaveMade);
}

}  // namespace

void MarkUnapplied(const Clocks& newest, std::vector<ReachEvent>& events) {
  for (ReachEvent& event : events) event.unapplied = IsUnapplied(event, newest, events);
}

}  // namespace nanwatch
