// SPDX-License-Identifier: Apache-2.0
// The loss of a step: the number that a backward pass begins at, without the scale that a
// GradScaler has multiplied it by.
//
// Where ops are watched they tell it (backward_pass.h), wherever it is computed. At level canary
// they go by, and three calls of Python's tell it: the model's, whose result it may be, the
// GradScaler's, which is handed it as it is, and the one that begins the pass. The last of them
// counts, but of a scaled loss the number before it was scaled, and none where that is not one
// number. A loss that is not finite becomes a finding there, because what made it went by unseen.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstddef>

#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class BackwardPasses;
class CompiledWrites;
class KnownBad;
class LateFacts;
class LevelState;
class Poison;
class PoisonWatch;
class StepLosses;
class UnobservedWrites;
struct Layer;
struct ThreadState;

namespace canary {
class Reads;
}  // namespace canary

// On the thread of the call, any.
class LossReads {
 public:
  // All outlive it.
  struct Uses {
    const LevelState& level;
    const Poison& poison;
    KnownBad& known_bad;
    UnobservedWrites& writes;
    CompiledWrites& compiled_writes;
    canary::Reads& reads;
    BackwardPasses& passes;
    PoisonWatch& poison_watch;
    StepLosses& losses;
    LateFacts& late;
  };
  explicit LossReads(const Uses& uses) noexcept : uses_(uses) {}

  // Tensors that a root module's call returned.
  void OnRootResult(ThreadState* thread, const at::TensorBase* const* tensors,
                    size_t count) noexcept;
  // GradScaler.scale is handed this one (scaler_calls.h); null: several.
  void OnScale(ThreadState* thread, const at::TensorBase* loss) noexcept;
  // A pass begins at these (backward_calls.h); null: another kind of value. The first bad number
  // among them is the loss, or else the first of all.
  void OnBackward(ThreadState* thread, const at::TensorBase* const* roots, size_t count) noexcept;

  // At level canary: it is bad. `layer`: that returned it; null: it was met outside the model. On a
  // GPU this is known later, and the moment that is resolved knows where.
  void ReportBad(ThreadState* thread, const PlainTensor& loss, const Layer* layer) noexcept;

 private:
  [[nodiscard]] bool IsReportedByCalls() const noexcept;
  bool Report(ThreadState* thread, const PlainTensor& plain, const Layer* layer);
  void ReportLossOfRegion(ThreadState* thread, const at::TensorBase* root);
  void ExpectRoot(const at::TensorBase& root);

  const Uses uses_;
};

}  // namespace nanwatch
