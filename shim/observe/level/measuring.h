// SPDX-License-Identifier: Apache-2.0
// Measures what the checks cost: switches them off for short blocks of steps and compares these
// with their neighbors (cost_meter.h).
//
// An answer that users rely on must not be lost for that. So:
//   - steps are off only while all is calm: nothing bad is alive, no update was skipped, no loss or
//     gradient is far off, one thread trains, and what it trains can be read (OnStep); never in a
//     notebook or in a forked child, which end in ways that leave no time to read
//   - where the last of them ends, the parameters, the optimizer's state and all buffers are read
//     in full, before the next step computes with them (ReadAfter)
//   - a model that is called without gradients is watched: that is validation (OnRootCall)
//   - a child is forked with the checks on, or nobody would see its first ops (OnFork)
//   - what is found later says that steps were off before it (wire::ValueRecord::kUnseenMeasuring)
//   - steps that were off are counted, and whether they were read after
// Levels canary and full are measured, on the CPU. Level auto measures itself (auto_level.h), and
// where the job ends among steps that it has left out, what they left is read here, too (OnExit).
//
// Threads: any. The flags are loads; the rest locks, at steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/wire/live_block.h"
#include "shim/observe/level/cost_meter.h"
#include "shim/observe/level/suspicion.h"

namespace nanwatch {

class BadValues;
class GpuEventQueue;
class LevelControl;
class NamedValues;
class Poison;
class ProcessSegment;
class PythonBridge;
struct ThreadState;

class Measuring {
 public:
  // All outlive it.
  struct Parts {
    LevelControl& level;
    PythonBridge& python;
    const ProcessSegment& segment;
    BadValues& bad_values;
    const GpuEventQueue& gpu;
    const Poison& poison;
    NamedValues& named_values;
    const bool& stops_on_anomaly;
  };
  // `share`: of all steps, that may be off; 0: none.
  Measuring(double share, const Parts& parts) noexcept
      : parts_(parts), wanted_(share > 0), meter_(share) {}

  // Steps were off, and nothing was read since: what is found now may have been made in them.
  [[nodiscard]] bool IsUnread() const noexcept { return unread_.load(std::memory_order_relaxed); }
  // The optimizer's step that runs is to be followed by ReadAfter.
  [[nodiscard]] bool ReadsAfterStep() const noexcept {
    return reads_.load(std::memory_order_relaxed);
  }

  // A step of an optimizer has ended, and is about to be told.
  struct Step {
    uint64_t time_ns = 0;  // CLOCK_MONOTONIC
    wire::Clocks clocks{};
    bool calm = false;      // as far as the caller knows
    bool off = false;       // its checks were off, or some of them
    bool idle = false;      // it ran at level idle, whoever chose that
    bool readable = false;  // all gradients were read, and are finite
    Suspicion::Step seen;
  };
  void OnStep(ThreadState* thread, const Step& step) noexcept;

  // The step has ended but for what is read after it, which is no part of its time: what the
  // optimizer has written, and then (ReadAfter) all parameters and buffers that modules hold.
  void RecordStepEnded() noexcept;
  void ReadAfter(ThreadState* thread) noexcept;

  // Steps are off, and a model is called from outside any module.
  void OnRootCall(ThreadState* thread) noexcept;

  // The process is about to fork, on this thread; no lock of ours is held.
  void OnFork() noexcept;

  // Python ends, by no exception.
  void OnExit(ThreadState* thread) noexcept;

  // Whether the checks were switched on again in the middle of the step that ends.
  [[nodiscard]] bool TakeCutShort() noexcept {
    return cut_short_.load(std::memory_order_relaxed) &&
           cut_short_.exchange(false, std::memory_order_relaxed);
  }

  [[nodiscard]] wire::Overhead Read() noexcept;

  // Level auto mixes levels by itself, and measures them.
  void SetOfAuto(const PairedRatios::Figure& figure) noexcept;

 private:
  friend struct BenchMode;  // tests/bench/overhead
  [[nodiscard]] bool IsCalm(ThreadState* thread, const Step& step) noexcept;
  void CutShort(ThreadState* thread) noexcept;
  void RecordLeftOut(ThreadState* thread, const Step& step) noexcept;
  [[nodiscard]] bool EndsCycle(const wire::Clocks& clocks) noexcept;

  const Parts parts_;
  std::atomic<bool> wanted_;
  std::atomic<bool> unread_{false};
  std::atomic<bool> left_out_{false};  // by level auto: the last step, or the one that runs
  std::atomic<bool> reads_{false};
  std::atomic<bool> cut_short_{false};

  std::mutex mutex_;  // covers all below
  CostMeter meter_;
  Suspicion suspicion_;
  bool readable_ = false;  // the last step that was on
  PairedRatios::Figure of_auto_;
  uint64_t steps_off_ = 0;
  uint64_t step_began_ns_ = 0;
  uint64_t step_ended_ns_ = 0;    // where it was read after; else 0
  const void* trains_ = nullptr;  // the thread whose step was the last
  uint32_t rounds_ = 0;           // steps of the optimizer that has taken fewest
};

}  // namespace nanwatch
