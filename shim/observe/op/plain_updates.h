// SPDX-License-Identifier: Apache-2.0
// Updates that a program makes by hand: an op writes a parameter in place, after a backward pass and
// outside any optimizer's step.
#pragma once

#include <ATen/core/TensorBase.h>
#include <ATen/record_function.h>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class PassLeaves;
class PythonNames;
class StepScope;

class PlainUpdates {
 public:
  // All outlive it.
  PlainUpdates(const PythonNames& names, PassLeaves& leaves, StepScope& steps) noexcept
      : names_(names), leaves_(leaves), steps_(steps) {}

  // The op may have made one (IsPlainUpdateDue).
  __attribute__((noinline, cold)) void OnOp(ThreadState* thread, const at::RecordFunction& op);
  // `p.data = p.data - rate * p.grad`, where nothing else has made an update. (FSDP and who swaps in
  // averaged weights exchange data, too, and have an optimizer.)
  void OnData(ThreadState* thread, const at::TensorBase& tensor) noexcept;

 private:
  const PythonNames& names_;
  PassLeaves& leaves_;
  StepScope& steps_;
};

}  // namespace nanwatch
