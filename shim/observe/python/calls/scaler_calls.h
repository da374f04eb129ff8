// SPDX-License-Identifier: Apache-2.0
// Two calls of a GradScaler, replaced by functions that tell of the call and make it:
//   GradScaler.scale             is handed the loss as it is, and multiplies it
//   torch._amp_update_scale_     the op by which it takes note of a step, skipped or not
// At level canary no op is watched where they are called, and ranges of their own they have not.
#pragma once

#include <ATen/core/TensorBase.h>

#include "shim/observe/python/api/python_api.h"
#include "shim/observe/python/names/python_names.h"

namespace nanwatch {

class ScalerCalls {
 public:
  // On the thread of the call, with the GIL. Not where torch.compile follows the call. Each may be
  // null.
  struct Callbacks {
    // Before it is scaled; null: several tensors at once. Not where the scaler is switched off.
    void (*on_scale)(const at::TensorBase* loss) = nullptr;
    // The scale as it is now, and what is not 0 where a gradient was not finite.
    void (*on_updated)(const at::TensorBase& scale, const at::TensorBase& found_inf) = nullptr;
  };

  // With the GIL held. `tensor_type` is set once TryReplace may be called.
  ScalerCalls(const PythonApi& api, PythonNames& names, PyObj* const& tensor_type,
              const Callbacks& callbacks) noexcept
      : api_(api), names_(names), tensor_type_(tensor_type), callbacks_(callbacks) {}
  ScalerCalls(const ScalerCalls&) = delete;
  ScalerCalls& operator=(const ScalerCalls&) = delete;

  // GIL held: replaces them, once torch is imported. Leaves Python's error indicator as it was.
  // Does nothing once done. A torch that has no such function has no such calls.
  void TryReplace();
  // Likewise the method of the one class of torch's own that does not call that of its base, once
  // its module is imported.
  void TryReplaceSharded();

 private:
  static PyObj* OnScale(PyObj* self, PyObj* outputs);
  static PyObj* OnUpdate(PyObj* self, PyObj* arguments);
  void ReplaceScale(PyObj* module, const char* class_name);

  const PythonApi& api_;
  PythonNames& names_;
  PyObj* const& tensor_type_;
  const Callbacks callbacks_;
  bool tried_ = false;  // GIL held, as of the next
  bool tried_sharded_ = false;
};

}  // namespace nanwatch
