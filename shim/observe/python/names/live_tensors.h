// SPDX-License-Identifier: Apache-2.0
// Every tensor that Python holds: variables, attributes, items of containers, and the arguments of
// the call that is under way. What only C++ holds, such as a result between two ops of one C++
// function, is not among them.
//
// It asks gc.get_objects, which lists all objects that Python's collector follows, and so takes
// some 30 ns for each of a process's objects (10 ms where there are 300,000): for what happens
// rarely.
#pragma once

#include <ATen/core/TensorBase.h>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class PythonNames;

// Takes the GIL. Calls fn(context, tensor) for each until it returns false. Collects no garbage and
// runs no code of the program's. False: there is no Python, this thread is none of Python's, or the
// list could not be had.
[[nodiscard]] bool ForEachLiveTensor(const PythonApi& api, PythonNames& names, PyObj* tensor_type,
                                     bool (*fn)(void* context, const at::TensorBase& tensor),
                                     void* context) noexcept;

}  // namespace nanwatch
