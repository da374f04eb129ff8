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

namespace nanwatch::entry_points {

// Between two ops: what tools ask for is applied here.
PythonBridgeCallbacks::Wanted OnRootCall() noexcept;
// A notebook's cell begins.
void OnCell() noexcept;
void OnRootArguments(const at::TensorBase* const* tensors, const char* const* names,
                     size_t count) noexcept;
// A module's call has returned these; and one in whose call a compiled region ran.
void OnModuleResult(const at::TensorBase* const* tensors, size_t count) noexcept;
void OnRegionOutputs(const at::TensorBase* const* outputs, size_t output_count,
                     const at::TensorBase* const* inputs, const char* const* input_names,
                     size_t input_count) noexcept;
void OnNewRoot(const Layer* root) noexcept;
// Tensors that a root module's call returned.
void OnRootResult(const at::TensorBase* const* tensors, size_t count) noexcept;
// Where a loss or a number shows: see step/loss.h, canary_reads.h and scaler.h.
void OnScale(const at::TensorBase* loss) noexcept;
void OnBackward(const at::TensorBase* const* roots, size_t count) noexcept;
void OnScaleUpdated(const at::TensorBase& scale, const at::TensorBase& found_inf) noexcept;
void OnNumberRead(const at::TensorBase& tensor, double number) noexcept;
void OnAsked(const at::TensorBase& tensor) noexcept;
void OnData(const at::TensorBase& tensor, const NamedTensor* named) noexcept;
// Steps of optimizers, as their hooks tell them, and that they do from now on.
void OnStepBegin(const void* optimizer, const void* identity, const char* name) noexcept;
void OnStepEnd() noexcept;
void OnStepsTold() noexcept;
// The program saves a checkpoint, and has (python/calls/checkpoint_calls.h).
void OnSaveBegins(unsigned save, const SavedTensors& saved);
void OnSaveWaits(unsigned save) noexcept;
void OnSaveEnds(unsigned save, const char* file, bool failed);
// A CUDA graph's capture ends, or it is replayed.
void OnGraphCalled(const void* graph, GraphCall call) noexcept;
// A line for the user.
void OnMessage(const char* line);
// Record functions may have been switched off on this thread.
void OnRecordSwitch();
// A profiler of torch's is about to start.
void BeforeProfiler();
// Modules' calls are seen from now on, or never will be.
void OnSettled();
void OnLate();
// Python ends. Parameters are still there, and can be read.
void OnPythonEnds(ExitCall::Ending ending);
// The process ends: an exit handler.
void OnExit();
void BeforeOsExit();

}  // namespace nanwatch::entry_points
