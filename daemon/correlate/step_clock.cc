#include "daemon/correlate/step_clock.h"

#include <algorithm>

namespace nanwatch {
namespace {

constexpr uint32_t kActiveShare = 32;

void RaiseTo(Clocks& largest, const Clocks& seen) {
  for (int i = 0; i < seen.optimizer_steps_size(); ++i) {
    if (i == largest.optimizer_steps_size()) largest.add_optimizer_steps(0);
    largest.set_optimizer_steps(i, std::max(largest.optimizer_steps(i), seen.optimizer_steps(i)));
  }
  largest.set_optimizer_ranges(std::max(largest.optimizer_ranges(), seen.optimizer_ranges()));
  largest.set_scaler_skips(std::max(largest.scaler_skips(), seen.scaler_skips()));
  largest.set_passes(std::max(largest.passes(), seen.passes()));
  largest.set_plain_updates(std::max(largest.plain_updates(), seen.plain_updates()));
  largest.set_optimizer_count(std::max(largest.optimizer_count(), seen.optimizer_count()));
}

int ClosingOptimizer(const Clocks& last) {
  uint32_t busiest = 0;
  for (const uint32_t count : last.optimizer_steps()) busiest = std::max(busiest, count);
  int closing = -1;
  for (int i = 0; i < last.optimizer_steps_size(); ++i) {
    const uint32_t count = last.optimizer_steps(i);
    if (count == 0 || uint64_t{count} * kActiveShare < busiest) continue;
    if (closing < 0 || count <= last.optimizer_steps(closing)) closing = i;
  }
  return closing;
}

}  // namespace

StepClock::StepClock(const RunFacts& facts) {
  RaiseTo(last_, facts.state().clocks());
  for (const Record& record : facts.records()) RaiseTo(last_, record.clocks());
  closing_ = ClosingOptimizer(last_);
}

StepReading StepClock::Read(const Clocks& clocks) const {
  StepReading reading;
  if (closing_ >= 0) {
    reading.step = closing_ < clocks.optimizer_steps_size() ? clocks.optimizer_steps(closing_) : 0;
    reading.source = "optimizer";
  } else if (last_.optimizer_ranges() > 0 || last_.optimizer_count() > 0) {
    reading.step = clocks.optimizer_ranges();
    reading.source = "optimizer";
  } else if (last_.scaler_skips() > 0) {
    reading.step = clocks.plain_updates();
    reading.source = "scaler";
  } else if (last_.passes() > 0 || last_.plain_updates() > 0) {
    reading.step = clocks.plain_updates();
    reading.source = "backward";
  } else {
    return reading;
  }
  reading.iteration = reading.step + clocks.scaler_skips();
  reading.micro_step = clocks.micro_passes();
  return reading;
}

uint64_t StepClock::UpdatesSeen() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, Read(last_).iteration));
}

}  // namespace nanwatch
