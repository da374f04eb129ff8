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
// or in its backward, and nothing is known of its arguments. What comes in from outside torch's ops
// after it may be its result, so such an origin is not exact.
//
// Buffers that kernels write are read where the module returns: one that was finite before is the
// region's work, unless somebody else has written it since.
#pragma once

#include <ATen/core/TensorBase.h>
#include <ATen/record_function.h>

#include <cstddef>
#include <cstring>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BadValues;
class BackwardPasses;
class CompiledWrites;
class ExternalValues;
class GpuEventQueue;
class GpuTensors;
class InputTracking;
class KnownBad;
class Poison;
class ProcessSegment;
class PythonNames;
enum class NamedTensorKind : uint8_t;
struct UnobservedWriter;

namespace canary {
class Buffers;
}

class CompiledRegions {
 public:
  // All outlive it.
  struct Parts {
    ProcessSegment& segment;
    const PythonNames& names;
    const Poison& poison;
    BadValues& bad_values;
    KnownBad& known_bad;
    ExternalValues& external_values;
    CompiledWrites& compiled_writes;
    InputTracking& input_tracking;
    BackwardPasses& passes;
    GpuEventQueue& gpu;
    canary::Buffers& buffers;
  };
  explicit CompiledRegions(const Parts& parts) noexcept : parts_(parts) {}

  [[nodiscard]] static bool IsRegion(const char* range) noexcept {
    return std::strncmp(range, "Torch-Compiled Region", 21) == 0;
  }

  // A region begins on this thread, in no other one. Inputs are asked for until it ends: what went
  // into an op that it calls may be the work of kernels that nobody sees, so that nothing can be
  // assumed of it.
  void Begin(ThreadState* thread, const char* name) noexcept;
  void End(ThreadState* thread) noexcept;
  // The node of a compiled backward begins. From here on inputs are asked for until the pass ends.
  void BeginBackward(ThreadState* thread, const at::RecordFunction& node) noexcept;
  // A node begins after a compiled backward, and takes what that has written.
  void CheckGradients(ThreadState* thread, const at::RecordFunction& node) noexcept;
  // The module returns in whose call a region ran.
  struct Tensors {
    const at::TensorBase* const* tensors;
    const char* const* names;  // null: they have none
    size_t count;
  };
  void OnOutputs(ThreadState* thread, const Tensors& outputs, const Tensors& inputs) noexcept;

 private:
  void SetName(ThreadState* thread, const char* name) const noexcept;
  void AddInputs(const Tensors& inputs, UnobservedWriter* writer);
  void AddArguments(const Tensors& inputs, UnobservedWriter* writer);
  void AddNamed(const Layer* layer, NamedTensorKind kind, UnobservedWriter* writer);
  void CheckBuffers(ThreadState* thread, const RegionSeen& region, const Tensors& inputs);
  void CheckOutput(ThreadState* thread, const RegionSeen& region, const at::TensorBase& output,
                   const Tensors& inputs, UnobservedWriter* writer, bool* inputs_added);

  const Parts parts_;
};

}  // namespace nanwatch
