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

// A bad loss that the program read, and that no pass began at.
bool IsLossLeftOut(const ReachEvent& loss, const std::vector<ReachEvent>& events) {
  if (loss.reach != Reach::kLoss || loss.how != ReachEvent::How::kEscape) return false;
  return std::none_of(events.begin(), events.end(), [&](const ReachEvent& other) {
    const bool of_pass = other.reach == Reach::kGradient ||
                         (other.reach == Reach::kLoss && other.how != ReachEvent::How::kEscape);
    return of_pass && other.origin == loss.origin;
  });
}

}  // namespace

void MarkUnapplied(const Clocks& newest, std::vector<ReachEvent>& events) {
  if (newest.scaler_skips() > 0) return;
  for (ReachEvent& event : events) {
    if (event.clocks == nullptr || !WentOn(event, newest)) continue;
    if (event.reach != Reach::kGradient && !IsLossLeftOut(event, events)) continue;
    event.unapplied = std::none_of(events.begin(), events.end(), [&](const ReachEvent& later) {
      return MayHaveMade(event, later);
    });
  }
}

}  // namespace nanwatch
