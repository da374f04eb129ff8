// SPDX-License-Identifier: Apache-2.0
// What is read of the training once a step, whether ops are watched or not: every gradient that an
// optimizer is given. The loss is beside it (loss.h).
//
// At level canary this is all that is looked at beside the update: each op of it in the first
// steps, later what it has written. On a GPU the gradients of a step are one list, and so is that.
// A gradient that is not finite becomes a finding: of the gradient, because what made it went by
// unseen. At level full its ops have told more already: what is bad there and was not told has come
// from outside torch, as has a bad parameter.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstddef>
#include <cstdint>

#include "shim/classify/bad_values.h"
#include "shim/observe/events/facts.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/step/update_plans.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class CollectiveResults;
class KnownBad;
class LevelState;
class LateFacts;
class Poison;
class PoisonWatch;
class PythonBridge;
class RecentValues;
class StepClock;
class StepLosses;
class StepSink;
class UnobservedWrites;
struct Layer;
struct NamedTensor;
struct OptimizedTensor;
struct OptimizedTensors;
struct ThreadState;

namespace canary {

// Bad gradients, and what an update has left bad: their records.
class Reports {
 public:
  // All outlive it.
  struct Uses {
    KnownBad& known_bad;
    RecentValues& recent;
    UnobservedWrites& writes;
    CollectiveResults& collective_results;
    const LevelState& level;
    const StepSink& sink;
  };
  explicit Reports(const Uses& uses) noexcept : uses_(uses) {}

  // A gradient that is bad: what it is known as, or its record, as one that came of `from`.
  ValueRef OnBadGradient(ThreadState* thread, const PlainTensor& gradient, const NamedTensor* named,
                         ValueRef from) noexcept;
  // The same where every op is watched and none of them has told of it: code outside torch has
  // written it since. Ticket 0: it is known.
  ValueRef OnGradientFromOutside(ThreadState* thread, const PlainTensor& gradient,
                                 const NamedTensor* named) noexcept;
  // A bad parameter, likewise: the update's ops are told apart from what they are given.
  void OnParameterFromOutside(ThreadState* thread, const PlainTensor& parameter,
                              const NamedTensor* named) noexcept;
  // One more bad gradient than a record has room for: it comes of what the first does, so that the
  // update's ops do not take it for something new.
  void Remember(const PlainTensor& gradient, ValueRef from) noexcept;
  // What the update `range_name` has written and left bad. `gradients`: that it was given.
  void OnBadWritten(ThreadState* thread, const PlainTensor& tensor, const NamedTensor* named,
                    bool is_state, const char* range_name, const Gradients& gradients) noexcept;

  [[nodiscard]] KnownBad& known_bad() const noexcept { return uses_.known_bad; }

 private:
  [[nodiscard]] uint32_t UncheckedBefore() const noexcept;
  [[nodiscard]] bool IsKnown(ThreadState* thread, const PlainTensor& tensor) noexcept;

  const Uses uses_;
};

// Reads the tensors of an optimizer, on the thread of its step.
class UpdateReads {
 public:
  // All outlive it.
  struct Uses {
    PythonBridge& python;
    const LevelState& level;
    const Poison& poison;
    const PoisonWatch& poison_watch;
    StepClock& clock;
    StepLosses& losses;
    BackwardPasses& passes;
    Reports& reports;
    LateFacts& late;
    StepSink& sink;
  };
  explicit UpdateReads(const Uses& uses) noexcept : uses_(uses) {}

  // Where the step of `optimizer` begins. Null: nothing is known of it.
  [[nodiscard]] Gradients ReadGradients(ThreadState* thread, const void* optimizer) noexcept;

  // The same where nothing is watched (poison_watch.h): only whether the step skips itself.
  [[nodiscard]] Gradients ReadSkip(ThreadState* thread, const void* optimizer) noexcept;

  // Where the step of `optimizer` has ended and its ops went by unwatched: whatever it wrote and
  // left bad becomes a finding of the step, `range_name`; on a GPU, when that has answered.
  // `gradients`: as read at its beginning.
  void CheckUpdate(ThreadState* thread, const void* optimizer, const char* range_name,
                   const Gradients& gradients) noexcept;

 private:
  struct Reading;
  void ReadGradient(Reading& reading, size_t place, const OptimizedTensor& tensor) noexcept;
  void OnBadGradient(Reading& reading, const PlainTensor& plain,
                     const OptimizedTensor& tensor) noexcept;
  void ReadParameter(Reading& reading, const OptimizedTensor& tensor) noexcept;
  void EnqueueFoundInf(ThreadState* thread, const at::TensorBase& found_inf) noexcept;
  void EnqueueGpuGradients(Reading& reading) noexcept;
  void ReadScale(ThreadState* thread, const at::TensorBase& scale, Gradients* told) noexcept;
  [[nodiscard]] bool MayHoldBad(const PlainTensor& plain, Gradients* told) const noexcept;
  [[nodiscard]] const NamedTensor* NameOf(const c10::TensorImpl* parameter) const noexcept;
  void EnqueuePlan(ThreadState* thread, const UpdatePlan& plan) noexcept;
  void ReadOnCpu(ThreadState* thread, const WrittenTensor& written, const char* range_name,
                 const Gradients& gradients, const PlainTensor& plain) noexcept;

  const Uses uses_;
  UpdatePlans plans_;
};

// Gradients on a GPU: their sums, and those that are bad, one after another, then the step of
// their optimizer, then what that has left bad. For the event queue, which calls it from one thread
// at a time.
class GpuGradients {
 public:
  // All outlive it.
  GpuGradients(Reports& reports, BackwardPasses& passes, StepLosses& losses,
               LateFacts& late) noexcept
      : reports_(reports), passes_(passes), losses_(losses), late_(late) {}

  // Of `count` of them, of which so many hold nothing but zeros.
  void AddSums(double squares, uint32_t count, uint32_t zero) noexcept;
  // What the optimizer divides them by.
  void SetScale(double scale) noexcept { state_.scale = scale; }
  void Report(ThreadState* thread, const PlainTensor& gradient, const NamedTensor* named) noexcept;
  // Of one that watched ops have made.
  void ReportWatched(const PlainTensor& gradient, const NamedTensor* named) noexcept;
  // What some of them are will never be known.
  void RecordUnseen() noexcept { state_.some_unseen = true; }
  // Adds what is known to `gradients`, reports the pass that made them, and forgets them. The
  // update begins.
  void Settle(ThreadState* thread, const char* range_name, Gradients* gradients) noexcept;
  // The update that `thread` is in has skipped itself: its fused op has written no parameter, and
  // gradients that are bad behind it were given to it so.
  [[nodiscard]] bool IsSkipped(const ThreadState* thread) const noexcept {
    return update_.skipped && update_thread_ == thread;
  }
  void EndUpdate() noexcept {
    update_.skipped = false;
    update_thread_ = nullptr;
  }
  // As CheckUpdate does, of one tensor that is bad.
  void ReportWritten(ThreadState* thread, const PlainTensor& tensor, const NamedTensor* named,
                     bool is_state) const noexcept;

 private:
  struct State {
    BackwardPasses::BadLeaves leaves;
    const NamedTensor* first = nullptr;
    ValueRef first_value;
    uint32_t count = 0;
    uint32_t summed = 0;
    uint32_t zero = 0;
    double squares = 0;
    double scale = 0;  // 0: not known
    bool some_unseen = false;
  };

  Reports& reports_;
  BackwardPasses& passes_;
  StepLosses& losses_;
  LateFacts& late_;
  State state_;  // of the update that begins next
  Gradients update_;
  const ThreadState* update_thread_ = nullptr;  // the job's, whose update it is
  char range_name_[96] = {};
};

}  // namespace canary
}  // namespace nanwatch
