// SPDX-License-Identifier: Apache-2.0
// What torch.compile made kernels of: seen at its edges alone.
//
// A compiled forward announces itself by a range, "Torch-Compiled Region: 0/0"; a compiled backward
// is the node CompiledFunctionBackward. The kernels inside announce nothing; ops that they call in
// between (a matrix product left to a library, or all of them with the backends "eager" and
// "aot_eager") are seen as ever, and named if what went into them was finite.
//
//   module call   -> region -> module returns:
//                    outputs are checked, and then arguments, parameters, buffers
//   node's inputs -> CompiledFunctionBackward -> inputs of the nodes after it,
//                    AccumulateGrad among them
//
// A value that came out bad is the region's own if nothing bad went in. A compiled function that is
// no module's has no return that we see: what it spoiled shows where a pass begins at its result,
// or in its backward, and nothing is known of its arguments.
#pragma once

#include <ATen/core/TensorBase.h>
#include <ATen/record_function.h>

#include <cstddef>
#include <cstring>

namespace nanwatch {

class Observer;
struct ThreadState;

namespace compiled_regions {

inline bool IsRegion(const char* range) noexcept {
  return std::strncmp(range, "Torch-Compiled Region", 21) == 0;
}
// A region begins on this thread, in no other one. Inputs are asked for until it ends: what went
// into an op that it calls may be the work of kernels that nobody sees, so that nothing can be
// assumed of it.
void Begin(Observer& observer, ThreadState* thread, const char* name) noexcept;
void End(Observer& observer, ThreadState* thread) noexcept;
// The node of a compiled backward begins. From here on inputs are asked for until the pass ends.
void BeginBackward(Observer& observer, ThreadState* thread,
                   const at::RecordFunction& node) noexcept;
// A node begins after a compiled backward, and takes what that has written.
void LookAtGradients(Observer& observer, ThreadState* thread,
                     const at::RecordFunction& node) noexcept;
// For the Python bridge: the module returns in whose call a region ran.
void OnOutputs(const at::TensorBase* const* outputs, size_t output_count,
               const at::TensorBase* const* inputs, const char* const* input_names,
               size_t input_count) noexcept;

}  // namespace compiled_regions
}  // namespace nanwatch
