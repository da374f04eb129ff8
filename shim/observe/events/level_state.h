// SPDX-License-Identifier: Apache-2.0
// Which level is in force, and what that means for values that are found now. Everybody reads this;
// level/level_control.h decides.
//
// Threads: any. All of it is loads, but for what was forgotten.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/wire/record.h"
#include "proto/wire/segment.h"
#include "shim/classify/bad_values.h"

namespace nanwatch {

// Whether ops have callbacks outside optimizers' ranges.
[[nodiscard]] constexpr bool WatchesEveryOp(wire::Level watched) noexcept {
  return watched == wire::Level::kFull || watched == wire::Level::kSampled;
}

class LevelState {
 public:
  LevelState(wire::Level asked, wire::Level watched) noexcept
      : asked_(asked), watched_(watched), was_lower_(!WatchesEveryOp(watched)) {}
  LevelState(const LevelState&) = delete;
  LevelState& operator=(const LevelState&) = delete;

  // As the vocabulary has it, what people asked for.
  [[nodiscard]] wire::Level asked() const noexcept {
    return asked_.load(std::memory_order_relaxed);
  }
  // kIdle, kCanary, kSampled or kFull: how ops are watched outside optimizers' ranges.
  [[nodiscard]] wire::Level watched() const noexcept {
    return watched_.load(std::memory_order_relaxed);
  }
  // The number of completed steps when the way of watching changed last; UINT32_MAX: never.
  [[nodiscard]] uint32_t switched_in_step() const noexcept {
    return switched_in_step_.load(std::memory_order_relaxed);
  }
  // How ops were watched before the last change, and whether that change was made to measure.
  [[nodiscard]] wire::Level switched_from() const noexcept {
    return switched_from_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool switched_to_measure() const noexcept {
    return switched_to_measure_.load(std::memory_order_relaxed);
  }
  // Whether ops ran that were not all checked, each by itself: at a lower level, or while the
  // checks were off so that their cost could be measured. What is read in part at level sampled is
  // known before anything is claimed (level/sampling.h), but for a GPU's.
  [[nodiscard]] bool was_lower() const noexcept {
    return was_lower_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool was_off_to_measure() const noexcept {
    return was_off_.load(std::memory_order_relaxed);
  }
  // The checks are off now so that their cost can be measured (measuring.h): as at idle.
  [[nodiscard]] bool off_to_measure() const noexcept {
    return off_to_measure_.load(std::memory_order_relaxed);
  }
  // At level sampled: whether something bad was found in the step that is running.
  [[nodiscard]] bool raised_in_step(uint32_t step) const noexcept {
    return raised_in_.load(std::memory_order_relaxed) == step + 1;
  }
  // Whether ops went unseen since this was asked last, because the program has switched torch's
  // record functions off.
  [[nodiscard]] bool TakeHidden() noexcept {
    return hidden_.load(std::memory_order_relaxed) &&
           hidden_.exchange(false, std::memory_order_relaxed);
  }

  // The process ran already when the observer came, by `nanwatch attach` or because the machine gave
  // it no time while torch was imported: ops may have run that nobody saw.
  [[nodiscard]] bool came_late() const noexcept {
    return came_late_.load(std::memory_order_relaxed);
  }
  void RecordCameLate() noexcept { came_late_.store(true, std::memory_order_relaxed); }

  // Ops ran unwatched while parameters were bad (poison.h).
  [[nodiscard]] bool was_blind() const noexcept {
    return was_blind_.load(std::memory_order_relaxed);
  }
  void RecordBlind() noexcept { was_blind_.store(true, std::memory_order_relaxed); }

  // From here on ops go unwatched: what is bad now is not followed any further.
  void ForgetBadValues(BadValues& bad_values) noexcept;
  // Whether anything bad was forgotten so: an op may read it later, and nobody knows.
  [[nodiscard]] bool forgot_bad_values() const noexcept {
    return forgot_.load(std::memory_order_relaxed);
  }
  // The newest value among those; ticket 0: none was forgotten, or it came in from outside.
  [[nodiscard]] ValueRef forgotten_value() noexcept {
    const std::lock_guard<std::mutex> lock(forgotten_mutex_);
    return forgotten_;
  }

 protected:
  ~LevelState() = default;

  std::atomic<wire::Level> asked_;
  std::atomic<wire::Level> watched_;
  std::atomic<bool> was_lower_;
  std::atomic<uint32_t> switched_in_step_{UINT32_MAX};
  std::atomic<wire::Level> switched_from_{wire::Level::kIdle};
  std::atomic<bool> switched_to_measure_{false};
  std::atomic<bool> off_to_measure_{false};
  std::atomic<bool> was_off_{false};
  std::atomic<bool> hidden_{false};
  std::atomic<uint32_t> raised_in_{0};  // the last step in which something was found, plus one

 private:
  std::atomic<bool> came_late_{false};
  std::atomic<bool> was_blind_{false};
  std::atomic<bool> forgot_{false};
  std::mutex forgotten_mutex_;
  ValueRef forgotten_;  // with forgotten_mutex_ held
};

}  // namespace nanwatch
