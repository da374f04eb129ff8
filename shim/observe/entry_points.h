// SPDX-License-Identifier: Apache-2.0
// What the Python bridge brings, with the GIL held: where values enter the program without an op
// (arguments of an outermost module call, parameters and buffers of a model that is called for the
// first time), the steps of optimizers and the replays of CUDA graphs.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstddef>

#include "shim/observe/python/names/layer_table.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {
class Observer;
struct ThreadState;
}  // namespace nanwatch

namespace nanwatch::entry_points {

// Between two ops: what tools ask for is applied here.
PythonBridgeCallbacks::Wanted OnRootCall() noexcept;
// A notebook's cell begins.
void OnCell() noexcept;
void OnRootArguments(const at::TensorBase* const* tensors, const char* const* names,
                     size_t count) noexcept;
void OnNewRoot(const Layer* root) noexcept;
// Steps of optimizers, as their hooks tell them, and that they do from now on.
void OnStepBegin(const void* optimizer, const void* identity, const char* name) noexcept;
void OnStepEnd() noexcept;
void OnStepsTold() noexcept;
// A CUDA graph's capture ends, or it is replayed.
void OnGraphCalled(const void* graph, GraphCall call) noexcept;
// Whether all parameters and buffers that modules hold and that can be read are finite. Reads them.
bool AreAllNamedFinite(Observer& observer, ThreadState* thread) noexcept;
// Reads all parameters and buffers that modules hold, after ops went unchecked; what is bad and not
// known yet came in unseen. False where anything was bad, or there was nothing to read.
bool ReadAllNamed(Observer& observer, ThreadState* thread) noexcept;
// One of these is bad.
void ReportEntry(Observer& observer, const PlainTensor& plain, wire::Target target,
                 uint32_t name) noexcept;

}  // namespace nanwatch::entry_points
