// SPDX-License-Identifier: Apache-2.0
// What a module of TorchScript holds. Its tensors and submodules live in C++; where another module
// has dicts of them, it has views (torch/jit/_script.py: OrderedDictWrapper, OrderedModuleDict).
// Everything needs the GIL, and leaves no error pending.
#pragma once

#include "shim/observe/python/api/python_api.h"

namespace nanwatch::script_views {

// The dict of submodules behind a module's `_modules`, borrowed from it. Null: it is no such view.
[[nodiscard]] PyObj* ModulesBehind(const PythonApi& api, PyObj* view);

// What is in a module's `_parameters` or `_buffers`: a new list of pairs of a name and a tensor.
// Null: it is no such view.
[[nodiscard]] PyObj* TensorsBehind(const PythonApi& api, PyObj* view);

}  // namespace nanwatch::script_views
