// SPDX-License-Identifier: Apache-2.0
// How far the training is: optimizers, their steps, and the clocks made of them.
//
// Threads: any; everything but loads locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "proto/wire/record.h"
#include "proto/wire/segment.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/step/step_counts.h"

namespace nanwatch {

class Emitter;

class StepProgress final : public StepClock {
 public:
  wire::Clocks Now() noexcept override;
  [[nodiscard]] bool IsNewestRootOlder() noexcept override;
  [[nodiscard]] bool ThreadsTrain() const noexcept override {
    return threads_train_.load(std::memory_order_relaxed);
  }
  // An outermost module is called for the first time.
  void RecordNewRoot() noexcept;
  [[nodiscard]] uint32_t completed() noexcept override;
  [[nodiscard]] uint32_t range() const noexcept override {
    return range_.load(std::memory_order_relaxed);
  }

  // The number of this optimizer. `emitter` may be null.
  [[nodiscard]] uint32_t NumberOf(const void* identity, std::string_view class_name,
                                  Emitter* emitter) noexcept;
  // Its range begins.
  void Begin(uint32_t optimizer) noexcept;
  [[nodiscard]] bool HasBegunOnce(uint32_t optimizer) noexcept;
  // The id of its class's name.
  [[nodiscard]] uint32_t ClassOf(uint32_t optimizer) noexcept;
  // Its range ends, on the thread of this small id. Not `counts`: nothing was updated.
  void End(uint32_t optimizer, bool counts, uint32_t thread) noexcept;
  // Completed steps of the optimizer that began last.
  [[nodiscard]] uint32_t StepsOfNewest() noexcept;
  // Its place in Clocks::optimizer_steps, from 1; 0: it has none.
  [[nodiscard]] uint32_t PlaceOf(uint32_t optimizer) noexcept;

  // An update by hand. False: an optimizer sets the pace, and it is none.
  bool CompletePlain() noexcept;
  // A GradScaler has skipped a step.
  void CompleteSkip() noexcept;
  // A backward pass reached its first leaf.
  void OnPassReachedLeaf() noexcept;

  // A step ends that was watched so; steps published at each of wire::Level's first kWatchedLevels.
  void CountWatched(wire::Level watched) noexcept;
  void StepsWatched(uint64_t* steps) noexcept;

 private:
  std::mutex mutex_;  // covers all below that is not atomic
  wire::Clocks clocks_{};
  StepCounts counts_;
  uint32_t newest_ = 0;               // number of the optimizer that began last
  uint32_t last_ended_ = 0;           // and of the one whose range ended last,
  uint32_t last_thread_ = 0;          // on this thread; 0: none has
  uint32_t root_after_plus_one_ = 0;  // completed ranges at the newest root's first call, plus one
  std::atomic<uint32_t> range_{0};
  std::atomic<bool> threads_train_{false};
  uint64_t steps_watched_[wire::kWatchedLevels] = {};
};

}  // namespace nanwatch
