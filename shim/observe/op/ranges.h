// SPDX-License-Identifier: Apache-2.0
// Ranges that torch announces: steps of optimizers, where Python does not report them, and
// collectives.
#pragma once

#include <ATen/record_function.h>

#include <memory>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class Collectives;
class PythonBridge;
class StepScope;

class Ranges {
 public:
  // All outlive it.
  Ranges(Collectives& collectives, const PythonBridge& python, StepScope& steps) noexcept
      : collectives_(collectives), python_(python), steps_(steps) {}

  // Called for every range, and returns at once for all others.
  [[nodiscard]] std::unique_ptr<at::ObserverContext> Begin(ThreadState* thread,
                                                           const at::RecordFunction& range);
  void End(ThreadState* thread, const at::RecordFunction& range, at::ObserverContext* context);

  [[nodiscard]] static bool IsOptimizerStep(const char* name) noexcept;

 private:
  Collectives& collectives_;
  const PythonBridge& python_;
  StepScope& steps_;
};

}  // namespace nanwatch
