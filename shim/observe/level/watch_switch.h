// SPDX-License-Identifier: Apache-2.0
// Carries out a change of how ops are watched: which callbacks libtorch has, and what is forgotten
// because ops go unwatched from here on.
#pragma once

#include "proto/wire/segment.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/input_tracking.h"

namespace nanwatch {

class BackwardPasses;
class BadValues;
class PythonBridge;
class ScalerState;

class WatchSwitch {
 public:
  // All outlive it.
  WatchSwitch(InputTracking& input_tracking, const PythonBridge& python, BadValues& bad_values,
              BackwardPasses& passes, ScalerState& scaler) noexcept
      : input_tracking_(input_tracking),
        python_(python),
        bad_values_(bad_values),
        passes_(passes),
        scaler_(scaler) {}

  // Between two ops, from `state`, which names the level that is watched from here on. `thread`:
  // the calling one; null: somebody who knows of no pass.
  void Apply(LevelState& state, ThreadState* thread) noexcept;
  // The process has tensors on a GPU. What an op read there cannot be looked up once it has ended,
  // so that inputs are asked for, but at level sampled.
  void OnGpu(const LevelState& state) noexcept;
  // Ranges are watched for collectives, and for steps where nothing else reports them.
  void ChooseRanges(const LevelState& state) noexcept;

  // Ops are watched less than they should be: a forked child cannot change that.
  [[nodiscard]] bool refused() const noexcept { return input_tracking_.refused(); }

 private:
  InputTracking& input_tracking_;
  const PythonBridge& python_;
  BadValues& bad_values_;
  BackwardPasses& passes_;
  ScalerState& scaler_;
  void HoldInputs(const LevelState& state) noexcept;

  bool on_gpu_ = false;
  bool holds_inputs_ = false;
};

}  // namespace nanwatch
