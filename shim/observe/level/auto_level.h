// SPDX-License-Identifier: Apache-2.0
// Level `auto`: which way each step is watched, so that watching costs no more than a budget.
//
// What a way costs is measured on the job itself: steps are let pass unwatched now and then, and
// the time of each step that is watched is compared with the last unwatched ones of its kind, which
// followed an unwatched one. A step that follows a watched one takes longer, because watching has
// taken over caches: that is a part of the price. What unwatched steps cost beside a process
// without nanwatch cannot be measured from within, and no plan can save it.
//
//   full <= budget               every step in full
//   canary <= budget < full      so many steps in full as the budget has room for, the others
//   canary budget < canary              so many steps canary, the others unwatched
//
// Which steps is drawn. When something suspicious was seen (a bad or far too large gradient or
// loss, activations that come ever nearer to the largest number of their type), the next steps are
// all watched in full, whatever they cost.
//
// Pure: no clock, no torch. One caller at a time.
#pragma once

#include <array>
#include <cstdint>

#include "proto/wire/record.h"
#include "proto/wire/segment.h"
#include "shim/observe/level/paired_ratios.h"
#include "shim/observe/level/recent.h"
#include "shim/observe/level/suspicion.h"

namespace nanwatch {

class AutoLevel {
 public:
  // After something suspicious so many steps are watched in full.
  static constexpr uint32_t kAlertSteps = 16;

  explicit AutoLevel(double budget_percent) noexcept : budget_(budget_percent / 100) {}

  // A step that has ended.
  struct Step {
    uint64_t ns = 0;                           // 0: not known
    wire::Level watched = wire::Level::kIdle;  // kIdle, kCanary or kFull
    uint32_t kind = 0;                         // steps of other kinds take another time
    Suspicion::Step seen;
  };
  // How the next one is to be watched.
  struct Next {
    wire::Level watched = wire::Level::kCanary;
    bool tell = false;  // the plan has changed: `why` and the figures below say how
    wire::LevelRecord::Why why = wire::LevelRecord::Why::kUnknown;
    uint32_t full_every = 0;       // one step in so many is watched in full; 0: none
    double overhead_percent = -1;  // expected of the plan; -1: it may be more than the budget
  };
  [[nodiscard]] Next OnStep(const Step& step) noexcept;

  // What was measured of the steps of late, as they were watched: by how much longer they took.
  [[nodiscard]] PairedRatios::Figure Read() const noexcept;

  [[nodiscard]] double budget_percent() const noexcept { return budget_ * 100; }

 private:
  // A way of watching steps, as far as it was seen: ratios to unwatched ones.
  struct Way {
    Recent ratio;  // of steps watched in it
    Recent after;  // of unwatched steps after such
    PairedRatios pairs, pairs_after;
    double steps = 0;  // of late
  };
  Way& Of(wire::Level watched) noexcept { return watched == wire::Level::kFull ? full_ : canary_; }
  [[nodiscard]] static double CostOf(const Way& way) noexcept;  // share of an unwatched step
  void CountSteps(wire::Level watched) noexcept;
  void Record(const Step& step) noexcept;
  void Plan() noexcept;
  // Whether what was measured says so, and not only its median.
  [[nodiscard]] bool PlanKeepsBudget() const noexcept;
  [[nodiscard]] bool MustEmitPlan() noexcept;
  [[nodiscard]] wire::Level Choose() noexcept;
  [[nodiscard]] double Draw() noexcept;  // evenly from [0, 1)

  double budget_;
  Way canary_, full_;
  // Nanoseconds of the last unwatched steps of each kind.
  static constexpr uint32_t kKinds = 4;
  std::array<RecentOf<8>, kKinds> idle_ns_;
  uint32_t kinds_seen_ = 0;  // a bit each
  uint32_t idle_count_ = 0;  // all that are or were in idle_ns_
  double idle_steps_ = 0;    // of late
  Suspicion suspicion_;
  uint64_t steps_ = 0;
  uint32_t alert_left_ = 0;                   // steps still to be watched in full
  double full_share_ = 0, canary_share_ = 0;  // of steps, by the plan
  double overhead_ = 0;                       // expected of it
  double told_full_share_ = -1;
  uint64_t told_at_ = 0;
  wire::Level before_ = wire::Level::kFull;  // how the step before was watched
  bool idle_again_ = false;                  // the next probe belongs to the last one
  uint64_t draws_ = 1;
  uint32_t probes_ = 0;
};

}  // namespace nanwatch
