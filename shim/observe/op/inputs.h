// SPDX-License-Identifier: Apache-2.0
// What an op's inputs were when it began, recorded only while something bad is alive.
#pragma once

#include <ATen/core/ivalue.h>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BadValues;
class GpuEventQueue;
class LevelState;
class SharedFiles;

class InputRecorder {
 public:
  // All outlive it.
  InputRecorder(SharedFiles& shared_files, BadValues& bad_values, const LevelState& level,
                const GpuEventQueue& gpu) noexcept
      : shared_files_(shared_files), bad_values_(bad_values), level_(level), gpu_(gpu) {}

  // Keeps the tensors among the op's arguments in the thread's input stack, finds out which hold
  // known bad values and confirms that the part the op reads is bad. Sets the frame's inputs_*
  // fields.
  void Record(ThreadState* thread, Frame& frame,
              c10::ArrayRef<const c10::IValue> arguments) noexcept;

 private:
  struct Call;  // the op that begins

  void RecordArgument(Call& call, const c10::IValue& value, uint16_t argument);
  void RecordTensor(Call& call, const at::TensorBase& tensor, uint16_t argument,
                    uint16_t place_in_list = InputSeen::kNoList);
  void FindKnownBad(Frame& frame, const PlainTensor& plain, bool in_list, InputSeen* input) const;

  SharedFiles& shared_files_;
  BadValues& bad_values_;
  const LevelState& level_;
  const GpuEventQueue& gpu_;
};

}  // namespace nanwatch
