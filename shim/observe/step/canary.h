// SPDX-License-Identifier: Apache-2.0
// What is read of the training once a step, whether ops are watched or not: every gradient that an
// optimizer is given. The loss is beside it (loss.h).
//
// At level canary this is all that is looked at beside the update: each op of it in the first
// steps, later what it has written. On a GPU the gradients of a step are one list, and so is that.
// A gradient that is not finite becomes a finding: of the gradient, because what made it went by
// unseen. At level full its ops have told more already.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstddef>
#include <cstdint>

#include "shim/classify/bad_values.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class Observer;
struct Layer;
struct NamedTensor;
struct ThreadState;

namespace canary {

// What is told of a step (wire::TelemetryEntry).
struct Gradients {
  bool known = false;
  bool norm_known = false;  // but for those on a GPU, while they are waited for
  double squares = 0;       // the sum of those of all elements, before an optimizer divides by
  double scale = 1;         // this, of which a GPU may have to tell first
  bool scale_on_gpu = false;
  double norm = 0;
  uint32_t count = 0;
  uint32_t missing = 0;
  uint32_t zero = 0;
  uint32_t bad = 0;
  bool skipped = false;                    // a GradScaler has the optimizer skip this update
  const NamedTensor* first_bad = nullptr;  // the parameter; null where its name is not known
  ValueRef first_bad_value;                // ticket 0: not known
  // The optimizer skips by itself where a GradScaler has found something, and what it found lies on
  // a GPU: bad gradients are taken for that.
  bool skips_by_itself = false;
  uint32_t on_gpu = 0;         // so many lie on a GPU,
  bool waits_for_gpu = false;  // and what they are is told later
  bool some_unseen = false;    // of some nothing will ever be known
  bool number_bad = false;     // a rate or the like of the optimizer is not finite
};

// Where the step of `optimizer` begins, on its thread. Null: nothing is known of it.
[[nodiscard]] Gradients ReadGradients(Observer& observer, ThreadState* thread,
                                      const void* optimizer) noexcept;

// The same where nothing is watched (poison_watch.h): only whether the step skips itself.
[[nodiscard]] Gradients ReadSkip(Observer& observer, ThreadState* thread,
                                 const void* optimizer) noexcept;

// Where the step of `optimizer` has ended and its ops went by unwatched: whatever it wrote and left
// bad becomes a finding of the step, `range_name`; on a GPU, when that has answered. `gradients`:
// as read at its beginning.
void CheckUpdate(Observer& observer, ThreadState* thread, const void* optimizer,
                 const char* range_name, const Gradients& gradients) noexcept;

// Gradients on a GPU: their sums, and those that are bad, told one after another, then the step of
// their optimizer, then what that has left bad.
class GpuGradients {
 public:
  // Of `count` of them, of which so many hold nothing but zeros.
  void AddSums(double squares, uint32_t count, uint32_t zero) noexcept;
  // What the optimizer divides them by.
  void SetScale(double scale) noexcept { scale_ = scale; }
  void Report(Observer& observer, ThreadState* thread, const PlainTensor& gradient,
              const NamedTensor* named) noexcept;
  // Of one that ops have made under our eyes.
  void ReportWatched(Observer& observer, const PlainTensor& gradient,
                     const NamedTensor* named) noexcept;
  // What some of them are will not be told.
  void RecordUnseen() noexcept { some_unseen_ = true; }
  // Adds what was told to `gradients`, tells of the pass that made them, and forgets them. The
  // update begins.
  void Settle(Observer& observer, ThreadState* thread, const char* range_name,
              Gradients* gradients) noexcept;
  // As CheckUpdate does, of one tensor that is bad.
  void ReportWritten(Observer& observer, ThreadState* thread, const PlainTensor& tensor,
                     const NamedTensor* named, bool is_state) const noexcept;

 private:
  Gradients update_;
  char range_name_[96] = {};
  BackwardPasses::BadLeaves leaves_;
  const NamedTensor* first_ = nullptr;
  ValueRef first_value_;
  uint32_t count_ = 0;
  uint32_t summed_ = 0;
  uint32_t zero_ = 0;
  double squares_ = 0;
  double scale_ = 0;  // 0: not told
  bool some_unseen_ = false;
};

}  // namespace canary
}  // namespace nanwatch
