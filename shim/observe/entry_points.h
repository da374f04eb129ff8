// Where values enter the program without an op: arguments of an outermost module call, parameters
// and buffers of a model that is called for the first time. Called by the Python door, with the GIL
// held.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstddef>

#include "shim/observe/layer_table.h"
#include "shim/observe/python_door.h"

namespace nanwatch::entry_points {

// Between two ops: what tools ask for is applied here.
PythonDoorCallbacks::Wanted OnRootCall() noexcept;
void OnRootArguments(const at::TensorBase* const* tensors, const char* const* names,
                     size_t count) noexcept;
void OnNewRoot(const Layer* root) noexcept;

}  // namespace nanwatch::entry_points
