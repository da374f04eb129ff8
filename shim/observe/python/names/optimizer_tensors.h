// SPDX-License-Identifier: Apache-2.0
// The parameters of a torch optimizer, and their gradients, read where its step begins; and what
// the step has written, where it ends.
//
// This is the one place where the observer takes the GIL: once or twice a step, on the thread that
// runs step() and needs the GIL for its next line anyway (twice more in a step whose parameters are
// told: parameter_stats.h), and only for the walk through param_groups; values are read after it
// was given back. A thread that Python is ending would be ended here as it would be a moment later.
#pragma once

#include <ATen/core/TensorBase.h>

#include <vector>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class PythonNames;

struct OptimizedTensor {
  at::TensorBase gradient;                     // undefined: it has none
  const c10::TensorImpl* parameter = nullptr;  // an identity, valid while the step runs
  bool requires_grad = false;
  // With kStats only:
  bool fused = false;   // its group has fused=True
  double eps = -1;      // its group's; -1: it has none, or one that is no float
  at::TensorBase held;  // the parameter
};

// What a step writes: a parameter, or a tensor of the state that the optimizer keeps for it.
struct WrittenTensor {
  at::TensorBase held;
  const c10::TensorImpl* parameter = nullptr;  // as above
  bool is_state = false;
  bool is_count = false;  // a number kept for a parameter that is none: of its steps
};

struct OptimizedTensors {
  // Set by the caller: what parameter_stats.h needs, too; or `written` alone; or only what a
  // GradScaler has left.
  enum class For : uint8_t { kGradients, kStats, kWritten, kSkip };
  For what = For::kGradients;
  std::vector<OptimizedTensor> list;   // in the order of param_groups
  std::vector<WrittenTensor> written;  // all parameters, then all states
  // What a GradScaler found, while it has an optimizer that skips by itself (a fused one) step;
  // undefined otherwise.
  at::TensorBase found_inf;
  // What it divides the gradients by, likewise.
  at::TensorBase grad_scale;
  // With kGradients: a group holds a NaN among its numbers, or an infinite rate.
  bool number_bad = false;
};

// `optimizer`: the torch.optim.Optimizer whose step() runs on this thread, further down. False,
// with nothing filled in, when it cannot be read. What is held is to be let go of before the step
// goes on: autograd may steal what nobody else holds.
bool ReadOptimizedTensors(const PythonApi& api, PythonNames& names, PyObj* tensor_type,
                          PyObj* optimizer, OptimizedTensors* tensors) noexcept;

}  // namespace nanwatch
