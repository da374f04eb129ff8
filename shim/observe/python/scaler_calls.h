// torch._amp_update_scale_, replaced by a function that makes the call and then tells of it: the op
// by which a GradScaler takes note of a step, skipped or not. At level canary no op is watched
// where it is called, and a range of its own it has not.
#pragma once

#include <ATen/core/TensorBase.h>

#include "shim/observe/python/python_api.h"
#include "shim/observe/python/python_names.h"

namespace nanwatch {

// On the thread of the call, with the GIL: the scale as it is now, and what is not 0 where a
// gradient was not finite. Not where torch.compile follows the call.
using OnScaleUpdated = void (*)(const at::TensorBase& scale, const at::TensorBase& found_inf);

class ScalerCalls {
 public:
  // With the GIL held; `on_update` may be null.
  ScalerCalls(const PythonApi& api, PythonNames& names, OnScaleUpdated on_update) noexcept
      : api_(api), names_(names), on_update_(on_update) {}
  ScalerCalls(const ScalerCalls&) = delete;
  ScalerCalls& operator=(const ScalerCalls&) = delete;

  // GIL held: replaces it, once torch is imported. Leaves Python's error indicator as it was. Does
  // nothing once done. A torch that has no such function has no such calls.
  void TryReplace();

 private:
  static PyObj* Tell(PyObj* self, PyObj* arguments);

  const PythonApi& api_;
  PythonNames& names_;
  const OnScaleUpdated on_update_;
  bool replaced_ = false;  // GIL held
};

}  // namespace nanwatch
