// SPDX-License-Identifier: Apache-2.0
// Steps: the facts from which the daemon makes `step`, `iteration` and `micro_step`.
//
// Torch's optimizers announce each step as a range "Optimizer.step#<Class>.step"; the instance is
// found in the Python frame that opened it, else the class stands for it. GradScaler shows itself
// by two ops. Programs that update their parameters by hand are seen at the in-place write itself.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/entry/observer_interface.h"
#include "shim/observe/events/facts.h"
#include "shim/observe/step/scaler_state.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BackwardPasses;
class FindingRecords;
class InputTracking;
class JobStop;
class LateFacts;
class LevelState;
class ParameterStats;
class Poison;
class PoisonWatch;
class PythonBridge;
class ProcessSegment;
class StepLosses;
class StepProgress;
class StepPublisher;
class StepSink;
struct StepMarks;

namespace canary {
class Buffers;
class UpdateReads;
}  // namespace canary

// Threads: any.
class StepScope {
 public:
  // All outlive it.
  struct Uses {
    const NanwatchEntry& entry;
    PythonBridge& python;
    ProcessSegment& segment;
    FindingRecords& records;
    BadValues& bad_values;
    InputTracking& tracking;
    LevelState& level;
    const Poison& poison;
    PoisonWatch& poison_watch;
    StepMarks& marks;
    StepProgress& progress;
    StepLosses& losses;
    ScalerState& scaler;
    StepPublisher& publisher;
    BackwardPasses& passes;
    canary::UpdateReads& reads;
    canary::Buffers& buffers;
    ParameterStats& stats;
    JobStop& stop;
    LateFacts& late;
    StepSink& sink;
    const bool& stops_on_anomaly;
  };
  explicit StepScope(const Uses& uses) noexcept : uses_(uses) {}

  // An optimizer's step begins and ends on this thread; only the outermost one counts. `optimizer`
  // may be null. `identity` is what no other optimizer has (known_optimizers.h); null: its address.
  void OnStepBegin(ThreadState* thread, const char* range_name, const void* optimizer,
                   const void* identity = nullptr) noexcept;
  void OnStepEnd(ThreadState* thread) noexcept;
  // So many are open, whatever ends were announced: exceptions have left the others.
  void OnStepsLeft(ThreadState* thread, uint32_t open) noexcept;
  // What follows of both for records and clocks: at once, or when a GPU has answered.
  void RecordOptimizerBegin(ThreadState* thread, const UpdateBegan& update) noexcept;
  void RecordOptimizerEnd(ThreadState* thread, const UpdateEnded& update) noexcept;
  // A pass has ended, and no optimizer has made a step yet.
  [[nodiscard]] bool AwaitsFirstKindOfUpdate() const noexcept;
  // An op wrote a parameter in place outside any optimizer range, after a backward pass.
  void OnPlainUpdate(ThreadState* thread) noexcept;
  void RecordPlainUpdate(ThreadState* thread) noexcept;
  // A GradScaler updates its scale.
  void OnScaleUpdate(ThreadState* thread, const ScalerState::Update& update) noexcept;

  // A fused optimizer writes arguments that only show with inputs; the next ranges track them.
  void OnFusedSeen() noexcept { fused_seen_.store(true, std::memory_order_relaxed); }

  // At level canary an update's ops are watched until so many steps are complete, for a bad rate or
  // eps shows at once and its op says why; then what the update has written is.
  void SetOpsWatchedUntil(uint32_t steps) noexcept { ops_watched_until_ = steps; }

 private:
  void OnOptimizerBegin(ThreadState* thread, const char* range_name, const void* optimizer,
                        const void* identity) noexcept;
  void OnOptimizerEnd(ThreadState* thread) noexcept;
  [[nodiscard]] Gradients ReadGradients(ThreadState* thread, const void* optimizer) noexcept;
  bool StopIfBad(ThreadState* thread, uint64_t event, Gradients* gradients) noexcept;
  void WatchUpdate(ThreadState* thread, const char* range_name, const void* optimizer,
                   const Gradients& gradients, bool skipped) noexcept;
  void CheckUpdate(ThreadState* thread, bool stopped) noexcept;
  [[nodiscard]] bool NeedsInputs(uint32_t optimizer) noexcept;
  void SayUnseen() const noexcept;

  const Uses uses_;
  std::atomic<bool> fused_seen_{false};
  std::atomic<uint32_t> updates_named_{0};  // whose bad state was looked up
  uint32_t ops_watched_until_ = 100;
  // At level sampled on a GPU, where watching an update means to ask for inputs, until so many.
  static constexpr uint32_t kAskedForInputs = 8;
};

}  // namespace nanwatch
