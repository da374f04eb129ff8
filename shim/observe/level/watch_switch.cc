// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/watch_switch.h"

#include <utility>

#include "shim/observe/python/python_bridge.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/step/scaler_state.h"
#include "shim/observe/torch/input_tracking.h"

namespace nanwatch {

void WatchSwitch::Apply(LevelState& state, ThreadState* thread) noexcept {
  const bool all_ops = WatchesEveryOp(state.watched());
  if (!all_ops && thread != nullptr) {
    // A scaler's decision may go unseen, too.
    passes_.Close(thread);
    state.ForgetBadValues(bad_values_);
    scaler_.Forget();
  }
  ChooseRanges(state);
  input_tracking_.WatchEverywhere(all_ops);
  HoldInputs(state);
}

void WatchSwitch::OnGpu(const LevelState& state) noexcept {
  on_gpu_ = true;
  HoldInputs(state);
}

void WatchSwitch::HoldInputs(const LevelState& state) noexcept {
  const bool holds = on_gpu_ && state.watched() != wire::Level::kSampled;
  if (holds == std::exchange(holds_inputs_, holds)) return;
  if (holds) {
    input_tracking_.Hold();
  } else {
    input_tracking_.Release();
    input_tracking_.Disarm();
  }
}

void WatchSwitch::ChooseRanges(const LevelState& state) noexcept {
  const bool collectives = state.watched() == wire::Level::kCanary || state.off_to_measure();
  input_tracking_.WatchRanges(!python_.ReportsSteps() ||
                              (collectives && python_.found_distributed()));
}

}  // namespace nanwatch
