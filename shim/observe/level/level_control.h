// SPDX-License-Identifier: Apache-2.0
// What is checked now, and who changes it.
//
// A level is asked for by the environment when the process starts, and by the control word
// (proto/wire/control.h) while it runs. It is carried out by four ways of watching:
//   idle    steps are counted, no tensor is read
//   canary  as idle, and gradients, losses, and what an optimizer's step makes of them (canary.h)
//   layer   every op is noted, what crosses module boundaries is read (cuts.h)
//   full    every op
// A change takes effect between two ops: ops that are open then end as they began, because libtorch
// keeps an op's callbacks from its begin to its end.
//
// Threads: any; what is asked for is read by one load where nothing has changed, and applied under
// a mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/wire/control.h"
#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/level/auto_level.h"

namespace nanwatch {

class Observer;
struct ThreadState;

// Whether ops have callbacks outside optimizers' ranges.
[[nodiscard]] constexpr bool WatchesEveryOp(wire::Level watched) noexcept {
  return watched == wire::Level::kFull || watched == wire::Level::kLayer;
}

// What a process begins with.
struct LevelAtStart {
  wire::Level level;
  bool chosen;  // somebody asked for it; else a GPU has another default
  double budget_percent;
  double measure_share;  // of all steps, that may be off to measure what the checks cost
};

class LevelControl final : public LevelRequests {
 public:
  explicit LevelControl(const LevelAtStart& start) noexcept
      : start_(start),
        asked_(start.level),
        watched_(WatchedAt(start.level)),
        was_lower_(WatchedAt(start.level) != wire::Level::kFull),
        automatic_(start.budget_percent) {}

  // As the vocabulary has it, what people asked for.
  wire::Level asked() const noexcept { return asked_.load(std::memory_order_relaxed); }
  // kIdle, kCanary, kLayer or kFull: how ops are watched outside optimizers' ranges.
  wire::Level watched() const noexcept { return watched_.load(std::memory_order_relaxed); }
  [[nodiscard]] const LevelAtStart& start() const noexcept { return start_; }
  // The number of completed steps when the way of watching changed last; UINT32_MAX: never.
  uint32_t switched_in_step() const noexcept {
    return switched_in_step_.load(std::memory_order_relaxed);
  }
  // Whether ops ran that were not all checked, each by itself: at a lower level, or while the
  // checks were off so that their cost could be measured.
  [[nodiscard]] bool was_lower() const noexcept {
    return was_lower_.load(std::memory_order_relaxed);
  }
  // From here on ops go unwatched: what is bad now is not followed any further.
  void ForgetBadValues(Observer& observer) noexcept;
  // Whether anything bad was forgotten so: an op may read it later, and nobody knows.
  [[nodiscard]] bool forgot_bad_values() const noexcept {
    return forgot_.load(std::memory_order_relaxed);
  }
  // The newest value among those; ticket 0: none was forgotten, or it came in from outside.
  [[nodiscard]] ValueRef forgotten_value() noexcept {
    const std::lock_guard<std::mutex> lock(forgotten_mutex_);
    return forgotten_;
  }
  [[nodiscard]] bool was_off_to_measure() const noexcept {
    return was_off_.load(std::memory_order_relaxed);
  }
  // Whether the last change was made to measure.
  [[nodiscard]] bool switched_to_measure() const noexcept {
    return switched_to_measure_.load(std::memory_order_relaxed);
  }

  // How ops were watched before the last change.
  [[nodiscard]] wire::Level switched_from() const noexcept {
    return switched_from_.load(std::memory_order_relaxed);
  }

  // The checks are off now so that their cost can be measured (measuring.h): as at idle.
  [[nodiscard]] bool off_to_measure() const noexcept {
    return off_to_measure_.load(std::memory_order_relaxed);
  }
  // Between two ops. Without a word in the log. Off does nothing where the level is neither canary
  // nor full, and on where somebody has switched since.
  void SwitchToMeasure(Observer& observer, ThreadState* thread, bool off) noexcept;
  // At a call that Python tells of: where the program has switched torch's record functions off on
  // this thread, ops run that no callback sees. The step then counts as one that was not watched.
  void RecordIfHidden(Observer& observer) noexcept;
  // Whether there was such a call since this was asked last.
  [[nodiscard]] bool TakeHidden() noexcept {
    return hidden_.load(std::memory_order_relaxed) &&
           hidden_.exchange(false, std::memory_order_relaxed);
  }
  // The request in force, 0 none.
  uint64_t applied() const noexcept { return applied_.load(std::memory_order_relaxed); }

  [[nodiscard]] wire::Level LevelAskedFor() const noexcept override { return asked(); }
  void ListenTo(const wire::ControlBlock& control) noexcept override {
    control_.store(&control, std::memory_order_release);
  }

  // Between two ops. Applies what a tool has asked for, and goes back where that has run out.
  void Look(Observer& observer, ThreadState* thread) noexcept {
    const wire::ControlBlock* control = control_.load(std::memory_order_acquire);
    if (control == nullptr) return;
    const uint64_t request = control->request.load(std::memory_order_acquire);
    if (__builtin_expect(request == applied() && deadline_ns_.load(std::memory_order_relaxed) == 0,
                         1)) {
      return;
    }
    LookAgain(observer, thread, *control);
  }

  // The first tensor of a GPU was seen. Where nobody has asked for a level, layer is what is
  // watched: at full the host makes a launch for every op.
  void OnGpu(Observer& observer, ThreadState* thread) noexcept;

  // At level layer: something bad was found. The next steps are watched in full.
  void Raise(Observer& observer) noexcept;
  // Whether that was so in the step that is running.
  [[nodiscard]] bool raised_in_step(uint32_t step) const noexcept {
    return raised_in_.load(std::memory_order_relaxed) == step + 1;
  }

  // A step has ended. At level auto: chooses how the next one is watched.
  void OnStep(Observer& observer, ThreadState* thread, const AutoLevel::Step& step) noexcept;

  // Ranges are looked at for collectives, and for steps where nothing else tells them.
  void ChooseRanges(Observer& observer) noexcept;

 private:
  friend struct BenchMode;  // tests/bench/overhead
  static wire::Level WatchedAt(wire::Level asked) noexcept;
  // Where no tool has asked for anything; with mutex_ held.
  [[nodiscard]] wire::Level Unasked() const noexcept;
  void LookAgain(Observer& observer, ThreadState* thread,
                 const wire::ControlBlock& control) noexcept;
  void Apply(Observer& observer, ThreadState* thread, wire::Level asked,
             wire::LevelRecord::Why why) noexcept;  // with mutex_ held
  void Switch(Observer& observer, ThreadState* thread, wire::Level watched,
              bool to_measure = false) noexcept;

  const LevelAtStart start_;
  bool on_gpu_ = false;     // with mutex_ held
  bool requested_ = false;  // what a tool has asked for is in force; with mutex_ held
  std::atomic<wire::Level> asked_;
  std::atomic<wire::Level> watched_;
  std::atomic<bool> was_lower_;
  std::atomic<const wire::ControlBlock*> control_{nullptr};
  std::atomic<uint64_t> applied_{0};
  std::atomic<uint32_t> switched_in_step_{UINT32_MAX};
  std::atomic<wire::Level> switched_from_{wire::Level::kIdle};
  std::atomic<bool> off_to_measure_{false};
  std::atomic<bool> was_off_{false};
  std::atomic<bool> switched_to_measure_{false};
  std::atomic<bool> hidden_{false};
  std::atomic<bool> was_hidden_{false};
  std::atomic<bool> forgot_{false};
  std::mutex forgotten_mutex_;
  ValueRef forgotten_;                    // with forgotten_mutex_ held
  std::atomic<uint32_t> raised_in_{0};    // the last step in which something was found, plus one
  std::atomic<uint64_t> deadline_ns_{0};  // of the request in force, 0 none
  std::mutex mutex_;
  AutoLevel automatic_;  // with mutex_ held
};

}  // namespace nanwatch
