// SPDX-License-Identifier: Apache-2.0
// What is checked now, and who changes it.
//
// A level is asked for by the environment when the process starts, and by the control word
// (proto/wire/control.h) while it runs. It is carried out by four ways of watching:
//   idle    steps are counted, no tensor is read
//   canary  as idle, and gradients, losses, and what an optimizer's step makes of them (canary.h)
//   sampled every op, but of large results only a part, until something bad shows (sampling.h)
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
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/events/sample_limit.h"
#include "shim/observe/gpu/gpu_listener.h"
#include "shim/observe/level/auto_level.h"

namespace nanwatch {

class FindingRecords;
class LivePublisher;
class Measuring;
class PythonBridge;
class StepProgress;
class WatchSwitch;
struct ThreadState;

// What a process begins with.
struct LevelAtStart {
  wire::Level level;
  bool chosen;  // somebody asked for it; else a GPU has another default
  double budget_percent;
  double measure_share;       // of all steps, that may be off to measure what the checks cost
  uint64_t sample_limit = 0;  // at level sampled: larger results are read in part
};

class LevelControl final : public LevelState, public LevelRequests, public GpuListener {
 public:
  // All outlive it.
  struct Parts {
    const NanwatchEntry& entry;
    SampleLimit& sample_limit;
    const ProcessSegment& segment;
    const FindingRecords& records;
    PythonBridge& python;
    StepProgress& steps;
    WatchSwitch& watch_switch;
    Measuring& measuring;
    LivePublisher& live;
  };
  LevelControl(const LevelAtStart& start, const Parts& parts) noexcept
      : LevelState(start.level, WatchedAt(start.level)),
        parts_(parts),
        start_(start),
        automatic_(start.budget_percent) {
    SetSampleLimit(WatchedAt(start.level));
  }

  [[nodiscard]] const LevelAtStart& start() const noexcept { return start_; }

  // Between two ops. Without a word in the log. Off does nothing where the level is neither canary
  // nor full, and on where somebody has switched since.
  void SwitchToMeasure(ThreadState* thread, bool off) noexcept;
  // At a call that Python tells of: where the program has switched torch's record functions off on
  // this thread, ops run that no callback sees. The step then counts as one that was not watched.
  void RecordIfHidden() noexcept;
  // The request in force, 0 none.
  uint64_t applied() const noexcept { return applied_.load(std::memory_order_relaxed); }

  [[nodiscard]] wire::Level LevelAskedFor() const noexcept override { return asked(); }
  void ListenTo(const wire::ControlBlock& control) noexcept override {
    control_.store(&control, std::memory_order_release);
  }

  // Between two ops. Applies what a tool has asked for, and goes back where that has run out.
  void Look(ThreadState* thread) noexcept {
    const wire::ControlBlock* control = control_.load(std::memory_order_acquire);
    if (control == nullptr) return;
    const uint64_t request = control->request.load(std::memory_order_acquire);
    if (__builtin_expect(request == applied() && deadline_ns_.load(std::memory_order_relaxed) == 0,
                         1)) {
      return;
    }
    LookAgain(thread, *control);
  }

  // The first tensor of a GPU was seen. Where nobody has asked for a level, sampled is what is
  // watched: at full the host makes a launch for every op.
  void OnFirstGpu(ThreadState* thread) noexcept override;

  // At level sampled: something bad was found. The next steps are watched in full.
  void Raise() noexcept override;
  // A step has ended. At level auto: chooses how the next one is watched.
  void OnStep(ThreadState* thread, const AutoLevel::Step& step) noexcept;

  // What WatchSwitch asks of Python has changed.
  void ChooseRanges() noexcept;

 private:
  friend struct BenchMode;  // tests/bench/overhead
  static wire::Level WatchedAt(wire::Level asked) noexcept;
  // Where no tool has asked for anything; with mutex_ held.
  [[nodiscard]] wire::Level Unasked() const noexcept;
  void LookAgain(ThreadState* thread, const wire::ControlBlock& control) noexcept;
  // The step that runs now, once.
  void CountStepUnwatched() noexcept;
  void SetSampleLimit(wire::Level watched) noexcept;
  // With mutex_ held: whether ops go unread for good (LevelState::was_lower).
  [[nodiscard]] bool LeavesUnread(wire::Level watched) const noexcept;
  // With mutex_ held, these three.
  void Apply(ThreadState* thread, wire::Level asked, wire::LevelRecord::Why why) noexcept;
  void Switch(ThreadState* thread, wire::Level watched, bool to_measure = false) noexcept;
  void EmitChange(ThreadState* thread, wire::LevelRecord record) noexcept;

  const Parts parts_;
  const LevelAtStart start_;
  bool on_gpu_ = false;     // with mutex_ held
  bool requested_ = false;  // what a tool has asked for is in force; with mutex_ held
  std::atomic<const wire::ControlBlock*> control_{nullptr};
  std::atomic<uint64_t> applied_{0};
  std::atomic<uint64_t> deadline_ns_{0};  // of the request in force, 0 none
  std::atomic<bool> was_hidden_{false};
  std::mutex mutex_;
  AutoLevel automatic_;  // with mutex_ held
};

}  // namespace nanwatch
