// What an op's inputs were when it began, noted only while something bad is alive.
#pragma once

#include <ATen/record_function.h>

#include "shim/observe/observer.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

// Notes the tensors among the op's arguments in the thread's input stack, looks up which hold known
// bad values and confirms that the part the op reads is bad. Sets the frame's inputs_* fields.
void RecordInputs(Observer& observer, ThreadState* thread, Frame& frame,
                  c10::ArrayRef<const c10::IValue> arguments) noexcept;

// Lets go of the frame's inputs. To be called exactly once for each frame that has noted any.
void DropInputs(ThreadState* thread, Frame& frame) noexcept;

// Whether any of those that are noted lies on a GPU.
bool HasGpuInput(const ThreadState* thread, const Frame& frame) noexcept;

// After the op: true if the memory of an input noted at its begin is still there, or need not be.
bool IsAlive(const InputSeen& input) noexcept;

// What was bad in its memory is no more: it was written over.
void ForgetBad(Observer& observer, const InputSeen& written) noexcept;

}  // namespace nanwatch
