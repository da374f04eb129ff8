// SPDX-License-Identifier: Apache-2.0
// Batch normalization writes its running statistics without saying so in its schema: a NaN there
// shows in no output until the model is evaluated. So after such an op the buffers of the layer it
// ran in are checked.
#pragma once

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BadValues;
class Findings;
class PythonNames;
struct NamedTensor;

class RunningStatistics {
 public:
  // All outlive it.
  RunningStatistics(Findings& findings, const PythonNames& names, BadValues& bad_values) noexcept
      : findings_(findings), names_(names), bad_values_(bad_values) {}

  void Check(ThreadState* thread, Frame& frame) noexcept;

 private:
  void CheckBuffer(ThreadState* thread, Frame& frame, const NamedTensor& named, uint8_t index);

  Findings& findings_;
  const PythonNames& names_;
  BadValues& bad_values_;
};

}  // namespace nanwatch
