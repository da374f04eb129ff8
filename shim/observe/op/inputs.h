// SPDX-License-Identifier: Apache-2.0
// What an op's inputs were when it began, noted only while something bad is alive.
#pragma once

#include <ATen/record_function.h>

#include "shim/observe/observer.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

// Notes the tensors among the op's arguments in the thread's input stack, looks up which hold known
// bad values and confirms that the part the op reads is bad. Sets the frame's inputs_* fields.
void RecordInputs(Observer& observer, ThreadState* thread, Frame& frame,
                  c10::ArrayRef<const c10::IValue> arguments) noexcept;

}  // namespace nanwatch
