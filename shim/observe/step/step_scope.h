// SPDX-License-Identifier: Apache-2.0
// Steps: the facts from which the daemon makes `step`, `iteration` and `micro_step`.
//
// Torch's optimizers announce each step as a range "Optimizer.step#<Class>.step"; the instance is
// found in the Python frame that opened it, else the class stands for it. GradScaler shows itself
// by two ops. Programs that update their parameters by hand are seen at the in-place write itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/wire/record.h"
#include "proto/wire/segment.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/step/step_counts.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class Emitter;
class Observer;

class StepScope final : public StepClock {
 public:
  // `marks` outlives it.
  explicit StepScope(StepMarks& marks) noexcept : marks_(marks) {}

  wire::Clocks Now() noexcept override;

  // An optimizer's step begins and ends on this thread; only the outermost one counts. `optimizer`
  // may be null. `identity` is what no other optimizer has (known_optimizers.h); null: its address.
  void OnStepBegin(Observer& observer, ThreadState* thread, const char* range_name,
                   const void* optimizer, const void* identity = nullptr) noexcept;
  void OnStepEnd(Observer& observer, ThreadState* thread) noexcept;
  // So many are open, whatever ends were told: exceptions have left the others.
  void OnStepsLeft(Observer& observer, ThreadState* thread, uint32_t open) noexcept;
  // What follows of both for records and clocks: at once, or when a GPU has answered.
  void RecordOptimizerBegin(Observer& observer, ThreadState* thread, const void* identity,
                            const char* range_name, const canary::Gradients& gradients) noexcept;
  void RecordOptimizerEnd(Observer& observer, ThreadState* thread, bool stopped,
                          bool ops_unwatched) noexcept;
  // A notebook's cell begins. Nothing was trained since the one before ended, so the step that ends
  // next has no time of its own.
  void OnCell() noexcept;
  // An op wrote a parameter in place outside any optimizer range, after a backward pass.
  void OnPlainUpdate(Observer& observer, ThreadState* thread) noexcept;
  void RecordPlainUpdate(Observer& observer, ThreadState* thread) noexcept;
  // The loss of a pass that begins, or a scalar that a module returned.
  void RecordLoss(double loss) noexcept {
    loss_.store(loss, std::memory_order_relaxed);
    loss_known_.store(true, std::memory_order_relaxed);
    loss_ever_.store(true, std::memory_order_relaxed);
  }
  // The last one; false when none was ever seen.
  bool LastLoss(double* loss) const noexcept {
    *loss = loss_.load(std::memory_order_relaxed);
    return loss_ever_.load(std::memory_order_relaxed);
  }
  // A loss has been multiplied by a GradScaler's scale, and its number told before: those that
  // passes begin at until an optimizer's step has ended are others.
  void OnLossScaled() noexcept { loss_scaled_.store(true, std::memory_order_relaxed); }
  bool LossIsScaled() const noexcept { return loss_scaled_.load(std::memory_order_relaxed); }
  // At level canary: the loss was bad; and what it was, for the gradients that come of it.
  void RecordBadLoss(ValueRef loss) noexcept;
  ValueRef BadLoss() noexcept;
  ValueRef TakeBadLoss() noexcept;
  // Likewise, what the model returned last; ticket 0: that was finite, or not read.
  void RecordBadResult(ValueRef result) noexcept;
  ValueRef BadResult() noexcept;
  // A backward pass reached its first leaf.
  void OnPassReachedLeaf() noexcept;

  // What a scaler has decided since may go unseen.
  void ForgetScaler() noexcept;
  // GradScaler: what its check found, and the update of the scale that follows.
  struct ScaleUpdate {
    double scale = 0;  // from now on
    bool known = false;
    bool found_inf = false;  // handed to the update; adds to what the checks found
  };
  void OnUnscale(bool found_inf) noexcept;
  void OnScaleUpdate(Observer& observer, ThreadState* thread, const ScaleUpdate& update) noexcept;

  // Number of the open (or last) optimizer range, from 1; and of completed steps of any kind.
  uint32_t range() const noexcept { return range_.load(std::memory_order_relaxed); }
  uint32_t completed() noexcept;
  // The same as of the last step that was published: one load, for every op.
  uint32_t iteration() const noexcept { return marks_.iteration.load(std::memory_order_relaxed); }
  // The step that is open counts as one that was not watched.
  void CountUnwatched() noexcept;
  // Completed steps of the optimizer whose step was told last to begin.
  uint32_t StepsOfNewest() noexcept;
  // A fused optimizer writes arguments that only show with inputs; the next ranges ask for them.
  void OnFusedSeen() noexcept { fused_seen_.store(true, std::memory_order_relaxed); }

  // At level canary an update's ops are watched until so many steps are complete, for a bad rate or
  // eps shows at once and its op tells why; then what the update has written is.
  void SetOpsWatchedUntil(uint32_t steps) noexcept { ops_watched_until_ = steps; }

  // Steps published at each of wire::Level's first kWatchedLevels.
  void StepsWatched(uint64_t* steps) noexcept;

 private:
  void OnOptimizerBegin(Observer& observer, ThreadState* thread, const char* range_name,
                        const void* optimizer, const void* identity) noexcept;
  void OnOptimizerEnd(Observer& observer, ThreadState* thread) noexcept;
  bool FoundInf() noexcept;
  canary::Gradients GradientsAreAdded() noexcept;
  bool NeedsInputs(uint32_t index) noexcept;
  uint32_t IndexOf(const void* identity, const char* class_name, Emitter* emitter) noexcept;
  void Publish(Observer& observer, ThreadState* thread, uint32_t optimizer, bool skipped) noexcept;
  void EmitCell(Observer& observer, ThreadState* thread, uint64_t began_ns) noexcept;
  void TakeTelemetry(Observer& observer, uint64_t now_ns, wire::TelemetryEntry* into) noexcept;

  StepMarks& marks_;
  std::mutex mutex_;
  wire::Clocks clocks_{};
  StepCounts counts_;
  uint32_t newest_ = 0;  // number of the optimizer whose step was told last to begin
  std::atomic<uint32_t> range_{0};
  std::atomic<bool> fused_seen_{false};
  bool found_inf_ = false;
  uint32_t skips_in_a_row_ = 0;
  std::atomic<double> loss_{0};
  std::atomic<bool> loss_ever_{false};
  std::atomic<bool> loss_scaled_{false};
  std::atomic<bool> loss_known_{false};  // seen since the step before
  canary::Gradients gradients_;          // of the range that is open
  ValueRef bad_loss_;                    // of this step
  ValueRef bad_result_;
  uint32_t ops_watched_until_ = 100;
  uint64_t step_began_ns_ = 0;
  std::atomic<uint64_t> cell_began_ns_{0};  // no step has ended in it; 0: one has
  double scale_ = 0;
  bool scale_known_ = false;
  uint64_t steps_watched_[wire::kWatchedLevels] = {};
};

}  // namespace nanwatch
