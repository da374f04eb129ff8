// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/cost_meter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "proto/wire/hash.h"

namespace nanwatch {
namespace {

// A block of short steps lasts about this long, so that one hiccup of the machine does not fill it.
constexpr double kBlockNs = 1e8;
// Most trainings that end behind a number of steps end behind a multiple of this.
constexpr uint64_t kRoundSteps = 50;
// A cycle that takes longer never ends: one of its optimizers is not used any more.
constexpr uint32_t kCycleStepsMax = 64;

// SplitMix64: a number for each number, the same in every process.
uint64_t Draw(uint64_t of) noexcept { return wire::Mixed(of + wire::kGoldenRatio); }

}  // namespace

double CostMeter::Block::Median() noexcept {
  if (count == 0) return 0;
  std::sort(ns.begin(), ns.begin() + count);
  return (static_cast<double>(ns[(count - 1) / 2]) + static_cast<double>(ns[count / 2])) / 2;
}

// All blocks of a process are a power of two long: steps that take a little longer now than before
// change nothing.
uint32_t CostMeter::ChooseBlock(bool in_lockstep) noexcept {
  if (in_lockstep) return kBlockInLockstep;
  const double step_ns = lately_.Median();
  if (!(step_ns > 0)) return kBlockMin;
  const auto steps = static_cast<uint32_t>(std::clamp(kBlockNs / step_ns, 1.0, double{kBlockMax}));
  return std::clamp(std::bit_ceil(steps), kBlockMin, kBlockMax);
}

void CostMeter::Plan(bool in_lockstep) noexcept {
  block_ = ChooseBlock(in_lockstep);
  lately_ = {};
  const auto period = static_cast<uint64_t>(std::ceil(block_ / share_));
  // The first one begins where as many steps have gone by as its block is to be a share of.
  const uint64_t begin = period_end_ != 0 ? period_end_ : (cycles_ / period + 1) * period;
  period_end_ = begin + period;
  const uint64_t drawn = Draw(begin);
  off_comes_first_ = (drawn & 1) != 0;
  const uint64_t places = period - 2 * block_ + 1;
  uint64_t place = (drawn >> 1) % places;
  for (uint64_t i = 0; i < kRoundSteps && MayMeetAnEnd(begin + place); ++i)
    place = (place + 1) % places;
  pair_begins_ = begin + place;
}

bool CostMeter::MayMeetAnEnd(uint64_t pair_begins) const noexcept {
  const uint64_t off_begins = pair_begins + (off_comes_first_ ? 0 : block_);
  // Behind the last of them everything is read.
  return off_begins / kRoundSteps != (off_begins + block_ - 1) / kRoundSteps;
}

void CostMeter::Measure(const Step& step) noexcept {
  const bool planned_off = OffAt(place_);
  if (cycle_off_ != planned_off) return Drop();  // somebody else has switched
  const bool first = place_ % block_ == 0;
  // Where several optimizers act, what they have written is read in each of their steps.
  const bool closes = planned_off && place_ % block_ == block_ - 1 && cycle_steps_ > 1;
  if (!first && !closes && cycle_known_) (step.off ? off_ : on_).Add(cycle_ns_);
  if (++place_ != 2 * block_) return;
  Drop();
  const uint32_t enough = block_ - 2;
  if (on_.count >= enough && off_.count >= enough) ratios_.Add(on_.Median() / off_.Median());
}

void CostMeter::OnCycle(const Step& step) noexcept {
  ++cycles_;
  cycles_off_ += cycle_off_ ? 1 : 0;
  if (cycle_known_) elapsed_ns_ += cycle_ns_;
  if (InPair()) {
    Measure(step);
  } else if (cycle_known_ && !step.off) {
    if (lately_.count == kBlockMax) lately_ = {};
    lately_.Add(cycle_ns_);
  }
  cycle_ns_ = 0;
  cycle_steps_ = 0;
  cycle_known_ = true;
  cycle_off_ = false;
  const bool is_short =
      cycles_ < kStepsMin || share_ * static_cast<double>(elapsed_ns_) < kOffNsMin;
  if (InPair() || share_ <= 0 || is_short) return;
  if (cycles_ >= period_end_) Plan(step.in_lockstep);
  const bool affordable =
      static_cast<double>(cycles_off_ + block_) <= share_ * static_cast<double>(cycles_) + 1e-9;
  if (cycles_ != pair_begins_ || cycles_ < quiet_until_ || !affordable) return;
  on_ = off_ = {};
  place_ = 0;
}

CostMeter::Next CostMeter::OnStep(const Step& step) noexcept {
  if (std::exchange(kind_, step.kind) != step.kind) {
    ratios_.Reset();
    Drop();
  }
  if (!step.calm || cycle_steps_ >= kCycleStepsMax) {
    Drop();
    quiet_until_ = cycles_ + kQuietSteps;
  }
  cycle_ns_ += step.ns;
  ++cycle_steps_;
  cycle_known_ = cycle_known_ && step.ns != 0;
  cycle_off_ = cycle_off_ || step.off;
  if (step.ends_cycle) OnCycle(step);
  if (!InPair() || !OffAt(place_)) return {};
  return {.off = true, .last_off = place_ % block_ == block_ - 1};
}

}  // namespace nanwatch
