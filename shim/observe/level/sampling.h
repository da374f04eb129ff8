// SPDX-License-Identifier: Apache-2.0
// Level sampled on a CPU: of an op's large result one page of sixteen is read, and what is left is
// recorded (unseen/sampled_values.h). When something bad shows, all that was recorded and is still
// there is read in full, in the order of writing, before the op that showed it is judged:
//
//   op ends -> small, or outside the sample of none -> read in full
//           -> sample clean -> recorded
//           -> bad -> read all that is recorded -> bad ones are reported, none as exact
//                  -> the op itself: exact only if nothing unread can have been its input
//                  -> the next steps are watched in full
//
// An op's inputs live until it has ended. So what it read of the recorded values is among those
// that are read now, and what has died was no input of its own. Two cases are left: what the op has
// written over itself, and an interpreter of TorchScript, which drops inputs before their op ends.
//
// Tensors on a GPU go another way (gpu/).
#pragma once

#include <ATen/core/TensorBase.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "shim/observe/op/sampled_outputs.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/unseen/sampled_values.h"

namespace nanwatch {

class BadValues;
class Findings;
class GpuEventQueue;
class GpuListener;
class LevelState;
class Poison;
class ProcessSegment;
class PythonBridge;
class StepClock;
struct StepMarks;

// Threads: any.
class Sampling final : public SampledOutputs {
 public:
  // All outlive it.
  struct Parts {
    ProcessSegment& segment;
    PythonBridge& python;
    const LevelState& level;
    GpuListener& control;
    StepClock& clock;
    const Poison& poison;
    BadValues& bad_values;
    Findings& findings;
    GpuEventQueue& gpu;
  };
  explicit Sampling(const Parts& parts) noexcept : parts_(parts) {}

  [[nodiscard]] bool Record(ThreadState* thread, const Frame& frame, const at::TensorBase& tensor,
                            const PlainTensor& plain, uint8_t index) noexcept override;
  void OnBadOutputs(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                    int count) noexcept override;

  // Something is bad of which it is not known where it came from: finds out what can be found out.
  void Resolve(ThreadState* thread) noexcept;

 private:
  struct Reading;

  [[nodiscard]] bool IsInDoubt() noexcept;
  [[nodiscard]] bool IsMask(const Frame& frame) noexcept;
  void ReadAll(Reading& reading) noexcept;
  void Read(Reading& reading, SampledValue& value);
  void ReportBad(Reading& reading) noexcept;
  void Report(Reading& reading, size_t begin, size_t end) noexcept;
  void OnEvicted(ThreadState* thread, SampledValue oldest) noexcept;

  const Parts parts_;
  SampledValues values_;
  std::atomic<bool> lost_{false};    // something was let go of that lives, and was not read
  std::mutex reading_;               // covers all below
  ThreadState* resolver_ = nullptr;  // made at the first hit
  // Ops that make -Inf alone, over and over: a mask that is computed.
  struct Habit {
    const OpTraits* op;
    const Layer* layer;
    uint32_t seen;
  };
  static constexpr uint32_t kTimesUntilHabit = 3;
  Habit habits_[64] = {};
};

}  // namespace nanwatch
