// SPDX-License-Identifier: Apache-2.0
// GradScaler, seen by its two ops: the check that divides the gradients and says whether any was
// infinite, and the update of the scale. Where ops go by unwatched (at level canary, and while
// parameters are bad), by the call of the second (scaler_calls.h).
#pragma once

#include <ATen/record_function.h>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class LateFacts;
class LevelState;
class NamedValues;
class Poison;
class PoisonWatch;
class ScalerState;
class StepScope;

// Threads: any.
class ScalerWatch {
 public:
  // All outlive it.
  struct Uses {
    const LevelState& level;
    const Poison& poison;
    PoisonWatch& poison_watch;
    NamedValues& named_values;
    ScalerState& state;
    StepScope& steps;
    LateFacts& late;
  };
  explicit ScalerWatch(const Uses& uses) noexcept : uses_(uses) {}

  // One of the two ops ends.
  void OnOp(ThreadState* thread, Frame& frame, const at::RecordFunction& range) noexcept;

  // For the Python bridge: a scale was updated. Does nothing where the op itself is watched.
  void OnUpdatedUnseen(ThreadState* thread, const at::TensorBase& scale,
                       const at::TensorBase& found_inf) noexcept;

 private:
  [[nodiscard]] bool IsSeenOtherwise() const noexcept;

  const Uses uses_;
};

}  // namespace nanwatch
