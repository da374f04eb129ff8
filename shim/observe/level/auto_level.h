// Level `auto`: which way each step is watched, so that watching costs no more than a budget.
//
// What a way costs is measured on the job itself: steps are let pass unwatched now and then, and
// the median times of steps watched in each way are compared with those of unwatched steps that
// follow an unwatched one. A step that follows a watched one takes longer, because watching has
// taken over caches: that is a part of the price. Our own share of a step's time, which is counted
// as well, is the least that is believed; that of unwatched steps no plan can save.
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
    double own_share = -1;                     // of its time, spent in callbacks; < 0: not counted
    double loss = 0;                           // valid with loss_known
    double gradient_norm = 0;                  // valid with norm_known
    double near_limit = 0;                     // of the step's largest activation; 0: not near
    bool loss_known = false;
    bool norm_known = false;
  };
  // How the next one is to be watched.
  struct Next {
    wire::Level watched = wire::Level::kCanary;
    bool tell = false;  // the plan has changed: `why` and the figures below say how
    wire::LevelRecord::Why why = wire::LevelRecord::Why::kUnknown;
    uint32_t full_every = 0;       // one step in so many is watched in full; 0: none
    double overhead_percent = -1;  // expected of the plan
  };
  [[nodiscard]] Next OnStep(const Step& step) noexcept;

  [[nodiscard]] double budget_percent() const noexcept { return budget_ * 100; }

 private:
  // The last values of something, and their median.
  class Recent {
   public:
    void Add(double value) noexcept;
    [[nodiscard]] uint32_t count() const noexcept { return count_; }
    [[nodiscard]] double Median() const noexcept;
    [[nodiscard]] double Largest() const noexcept;

   private:
    static constexpr uint32_t kKept = 48;
    std::array<double, kKept> values_{};
    uint32_t count_ = 0;  // saturates
    uint32_t next_ = 0;
  };

  // A way of watching steps, as far as it was seen.
  struct Way {
    Recent ns;     // of steps watched in it; of unwatched ones those alone that follow such
    Recent after;  // of unwatched steps after such
    Recent own;    // shares of ours
  };
  Way& Of(wire::Level watched) noexcept {
    return watched == wire::Level::kFull     ? full_
           : watched == wire::Level::kCanary ? canary_
                                             : idle_;
  }
  [[nodiscard]] double CostOf(const Way& way) const noexcept;  // share of a bare step
  void Note(const Step& step) noexcept;
  [[nodiscard]] bool IsSuspicious(const Step& step) noexcept;
  void Plan() noexcept;
  [[nodiscard]] bool MustTellPlan() noexcept;
  [[nodiscard]] wire::Level Choose() noexcept;
  [[nodiscard]] double Draw() noexcept;  // evenly from [0, 1)

  double budget_;
  Way idle_, canary_, full_;
  Recent losses_, norms_;     // of healthy steps
  double nearest_limit_ = 0;  // so far
  uint64_t steps_ = 0;
  uint32_t alert_left_ = 0;                   // steps still to be watched in full
  double full_share_ = 0, canary_share_ = 0;  // of steps, by the plan
  double overhead_ = 0;                       // expected of it
  double told_full_share_ = -1;
  uint64_t told_at_ = 0;
  uint64_t far_off_at_ = 0;  // the steps of the last suspicions, 0 none
  uint64_t bad_at_ = 0;
  wire::Level before_ = wire::Level::kFull;  // how the step before was watched
  bool idle_again_ = false;                  // the next probe belongs to the last one
  uint64_t draws_ = 1;
  uint32_t probes_ = 0;
};

}  // namespace nanwatch
