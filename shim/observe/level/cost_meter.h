// SPDX-License-Identifier: Apache-2.0
// Plans the steps in which the checks are switched off so that their cost can be measured, and
// compares these with their neighbors.
//
//   ... on on on | B steps off | B steps on | on on on ...      or the other way round
//                  ^ one pair, somewhere in a period of B / share steps
//
// Of each block the first step is left out: it still feels the switch. A pair gives the ratio of
// the two blocks' median times (paired_ratios.h). Where in its period the pair lies, and which
// block comes first, is drawn, because jobs have periods of their own. The draw depends on nothing
// but the number of steps, so that ranks that wait for each other switch together: one of them
// alone would measure the others' checks.
//
// A step here is a cycle: as many steps of optimizers as it takes for each of them to have its
// turn.
//
// Pure: no clock, no torch. One caller at a time.
#pragma once

#include <array>
#include <cstdint>

#include "shim/observe/level/paired_ratios.h"

namespace nanwatch {

class CostMeter {
 public:
  static constexpr uint32_t kBlockMin = 4;
  static constexpr uint32_t kBlockMax = 32;
  static constexpr uint32_t kBlockInLockstep = 8;
  // Nothing is measured before so many steps, and not before the share of the time is this long,
  // which takes five seconds where it is 1 %: short runs are watched whole.
  static constexpr uint64_t kStepsMin = 100;
  static constexpr double kOffNsMin = 5e7;
  // After something that was not calm so many steps are all watched.
  static constexpr uint64_t kQuietSteps = 100;

  // `share`: of all steps, that may be off at most; 0: never, at most 0.5.
  explicit CostMeter(double share) noexcept : share_(share < 0.5 ? share : 0.5) {}

  // A step of an optimizer that has ended.
  struct Step {
    uint64_t ns = 0;         // since the end of the step before; 0: not known
    bool ends_cycle = true;  // each optimizer has had its turn
    bool off = false;        // the checks were off
    // Nothing forbids to leave the next step unchecked.
    bool calm = false;
    bool in_lockstep = false;  // with other processes
    // What is measured, any number: another one makes the figure begin anew.
    uint32_t kind = 0;
  };
  // How the next one is to be.
  struct Next {
    bool off = false;
    bool last_off = false;  // it ends the block
  };
  [[nodiscard]] Next OnStep(const Step& step) noexcept;

  [[nodiscard]] PairedRatios::Figure Read() const noexcept { return ratios_.Read(); }

 private:
  struct Block {
    std::array<uint64_t, kBlockMax> ns{};
    uint32_t count = 0;

    void Add(uint64_t time_ns) noexcept {
      if (time_ns != 0 && count < ns.size()) ns[count++] = time_ns;
    }
    [[nodiscard]] double Median() noexcept;
  };

  void Drop() noexcept { place_ = kNoPair; }
  [[nodiscard]] bool InPair() const noexcept { return place_ != kNoPair; }
  // Of one that begins behind so many steps: whether a training that ends behind a round number of
  // steps may end among those that are off.
  [[nodiscard]] bool MayMeetAnEnd(uint64_t pair_begins) const noexcept;
  [[nodiscard]] bool OffAt(uint32_t place) const noexcept {
    return (place < block_) == off_comes_first_;
  }
  void OnCycle(const Step& step) noexcept;
  void Measure(const Step& step) noexcept;
  void Plan(bool in_lockstep) noexcept;
  [[nodiscard]] uint32_t ChooseBlock(bool in_lockstep) noexcept;

  static constexpr uint32_t kNoPair = UINT32_MAX;

  const double share_;
  PairedRatios ratios_;
  uint32_t kind_ = 0;

  uint64_t cycles_ = 0;
  uint64_t cycles_off_ = 0;
  uint64_t elapsed_ns_ = 0;
  uint64_t quiet_until_ = 0;  // of cycles_
  Block lately_;              // steps that were on, for the length of a block

  // The cycle that is under way.
  uint64_t cycle_ns_ = 0;
  uint32_t cycle_steps_ = 0;
  bool cycle_known_ = true;
  bool cycle_off_ = false;

  // The period that is under way, in cycles_. 0: there was none yet.
  uint64_t period_end_ = 0;
  uint64_t pair_begins_ = 0;
  uint32_t block_ = kBlockMin;
  bool off_comes_first_ = false;
  uint32_t place_ = kNoPair;  // of the cycle that is under way, in its pair
  Block on_, off_;
};

}  // namespace nanwatch
