// SPDX-License-Identifier: Apache-2.0
// Level layer: what crosses module boundaries is looked at, and what lies between two such cuts
// only when one is bad.
//
//   forward    what each module's call returns
//   backward   what an autograd node leaves alive for the next ones, where it ends;
//              but the gradient of a leaf where its optimizer takes it (canary.h)
//   loss       the value a backward pass begins at
//   update     what outlives its step, before the optimizer runs; the optimizer's own ops
//
// Every op's output is noted (written_values.h) instead of read, but for small ones: those are
// looked at at once, because that takes no longer than noting them. When a cut is bad, all noted
// values that are still as they were written are looked at in the order in which they were, the bad
// ones are told to the same functions that level full calls (findings.h), and the next steps are
// watched in full.
//
// An op is told as exact only if everything it may have read is known: of values that died or were
// written over before anybody looked, those that may still have been there when it ran make it "at
// or before". Which of several bad values went into which is known where autograd has it
// (forward_graph.h), and elsewhere assumed and told so.
//
// Tensors on a GPU are looked at by the same cuts, in another way: gpu_cuts.h.
#pragma once

#include <ATen/core/TensorBase.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "shim/classify/bad_values.h"
#include "shim/observe/level/forward_graph.h"
#include "shim/observe/level/written_values.h"
#include "shim/observe/op/layer_values.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class ExternalValues;
class Findings;
class GpuEventQueue;
class GpuListener;
class Headroom;
class KnownBad;
class LevelState;
class Poison;
class ProcessSegment;
class PythonBridge;
class UnobservedWrites;
struct StepMarks;
struct Traced;

class Cuts final : public LayerValues {
 public:
  // All outlive it.
  struct Parts {
    ProcessSegment& segment;
    PythonBridge& python;
    const LevelState& level;
    GpuListener& control;
    const StepMarks& marks;
    const Poison& poison;
    BadValues& bad_values;
    KnownBad& known_bad;
    Findings& findings;
    ExternalValues& external_values;
    UnobservedWrites& unobserved_writes;
    Headroom& headroom;
    GpuEventQueue& gpu;
  };
  explicit Cuts(const Parts& parts) noexcept : parts_(parts) {}

  [[nodiscard]] bool Record(ThreadState* thread, const Frame& frame, const at::TensorBase& tensor,
                            const PlainTensor& plain, uint8_t index) noexcept override;
  void OnBadOutputs(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                    int count) noexcept override;

  // A module's call on this thread has returned these.
  void OnModuleResult(ThreadState* thread, const at::TensorBase* const* tensors,
                      size_t count) noexcept;
  void OnPass(ThreadState* thread, const SequenceEntry* root) noexcept override;
  void OnNodeEnd(ThreadState* thread) noexcept override;
  // An update is about to begin: what outlives its step is looked at.
  void OnUpdate(ThreadState* thread) noexcept;
  [[nodiscard]] bool IsMask(const OpTraits& op, uint8_t kinds,
                            const Layer* layer) noexcept override;
  // Something is bad of which it is not known where it came from: finds out what can be found out.
  // `bad`: the tensor; null: it is a gradient.
  void Resolve(ThreadState* thread, const c10::TensorImpl* bad) noexcept;

 private:
  struct Walk;
  struct Call;

  WrittenRing* RingOf(ThreadState* thread) noexcept;
  // With walking_ held.
  void WalkAll(const c10::TensorImpl* bad, Walk* walk) noexcept;
  void Report(WrittenValue* const* values, size_t count, Walk* walk);
  static Traced Trace(const Walk& walk, const Call& call);
  void LookAtResult(ThreadState* thread, const at::TensorBase& tensor) noexcept;
  void LookAtGradients(ThreadState* thread, WrittenRing* ring) noexcept;

  const Parts parts_;
  std::atomic<WrittenRing*> rings_{nullptr};
  std::mutex walking_;               // covers all below
  ThreadState* resolver_ = nullptr;  // made at the first hit
  struct Habit {
    const OpTraits* op;
    const Layer* layer;
    uint32_t seen;
  };
  static constexpr uint32_t kTimesUntilHabit = 3;
  Habit habits_[64] = {};
};

}  // namespace nanwatch
