// SPDX-License-Identifier: Apache-2.0
// The calls by which a program begins backward passes. Both torch.autograd.backward and .grad end
// in `Variable._execution_engine.run_backward`, an object of C that has no place for a method of
// ours: an object of a class derived from its own stands there instead, whose run_backward tells of
// the call and then has the first one make it. It is a function of C too, so no traceback shows it.
#pragma once

#include <ATen/core/TensorBase.h>

#include "shim/observe/python/api/python_api.h"
#include "shim/observe/python/names/python_names.h"

namespace nanwatch {

// On the thread of the call, with the GIL, before the pass: the first values that it begins at,
// where its leaves accumulate their gradients; one that is no tensor is null. None: the gradients
// are handed back.
using OnBackwardCall = void (*)(const at::TensorBase* const* roots, size_t count);

class BackwardCalls {
 public:
  // `tensor_type` is set once TryReplace may be called; `on_call` may be null.
  BackwardCalls(const PythonApi& api, PythonNames& names, PyObj* const& tensor_type,
                OnBackwardCall on_call) noexcept
      : api_(api), names_(names), tensor_type_(tensor_type), on_call_(on_call) {}
  BackwardCalls(const BackwardCalls&) = delete;
  BackwardCalls& operator=(const BackwardCalls&) = delete;

  // GIL held: replaces the engine, once torch.autograd is imported. Leaves Python's error indicator
  // as it was. Does nothing once done.
  void TryReplace();

 private:
  static PyObj* Run(PyObj* self, PyObj* arguments, PyObj* named);
  static constexpr size_t kRootsMax = 16;
  size_t ReadRoots(PyObj* arguments, PyObj* named, const at::TensorBase* (&roots)[kRootsMax]) const;

  const PythonApi& api_;
  PythonNames& names_;
  PyObj* const& tensor_type_;
  const OnBackwardCall on_call_;
  PyObj* original_ = nullptr;  // the first engine's run_backward, owned for ever
};

}  // namespace nanwatch
