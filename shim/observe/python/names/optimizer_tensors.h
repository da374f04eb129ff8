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

#include <cstdint>
#include <span>
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
  at::TensorBase held;  // the parameter; with `holds_parameters` too
};

// What a step writes: a parameter, or a tensor of the state that the optimizer keeps for it.
struct WrittenTensor {
  const PyObj* object = nullptr;  // an identity
  at::TensorBase held;
  const c10::TensorImpl* parameter = nullptr;  // as above
  bool is_state = false;
  bool is_count = false;  // a number kept for a parameter that is none: of its steps
};

// What such a tensor is known by from step to step. As long as all of it is the same, so is where
// its values lie: a group that is added, a state that is loaded, `p.data =`, a storage that is
// resized or replaced each change some of it.
struct TensorIdentity {
  const PyObj* object;
  const c10::TensorImpl* impl;
  const c10::StorageImpl* storage;  // held weakly by whoever keeps the identity
  const void* data;                 // of the storage
  size_t bytes;                     // of the storage
  int64_t offset;
  int64_t numel;
  uint64_t shape;  // mixed from its sizes and strides
  c10::ScalarType type;
  bool is_number;  // one element on the CPU, float32 or float64
  bool is_count;   // as of WrittenTensor: on a GPU nobody reads it, wherever it lies

  // `written` is one run of memory.
  [[nodiscard]] static TensorIdentity Of(const WrittenTensor& written);
  [[nodiscard]] bool Matches(const PyObj* other, const c10::TensorImpl& tensor) const noexcept;
  // Of one that is a number, and matches.
  [[nodiscard]] bool IsFinite() const noexcept;
};

struct OptimizedTensors {
  // Set by the caller: what parameter_stats.h needs, too; or `written` alone; or only what a
  // GradScaler has left.
  enum class For : uint8_t { kGradients, kStats, kWritten, kSkip };
  For what = For::kGradients;
  bool holds_parameters = false;       // set by the caller, with kGradients
  std::vector<OptimizedTensor> list;   // in the order of param_groups
  std::vector<WrittenTensor> written;  // all parameters, then all states
  // Set by the caller with kWritten: what was written last time. Where the calling thread has the
  // GIL, and goes on having it, all that is the same now, and its numbers are finite, `is_expected`
  // is set and `written` left empty.
  std::span<const TensorIdentity> expected;
  bool is_expected = false;
  // What a GradScaler found, while it has an optimizer that skips by itself (a fused one) step;
  // undefined otherwise.
  at::TensorBase found_inf;
  // What it divides the gradients by, likewise.
  at::TensorBase grad_scale;
  // With kGradients: a group holds a NaN among its numbers, or an infinite rate.
  bool number_bad = false;
  // One of these is a factor of what torch's optimizers compute: a rate, a decay.
  bool factor_bad = false;
  // With kGradients: the class is one of torch's, which compute with the numbers of their groups and
  // no others.
  bool is_of_torch = false;
  // With kGradients: `lr` of the first group, where that is a float.
  bool rate_known = false;
  double rate = 0;
};

// `optimizer`: the torch.optim.Optimizer whose step() runs on this thread, further down. False,
// with nothing filled in, when it cannot be read. What is held is to be let go of before the step
// goes on: autograd may steal what nobody else holds.
bool ReadOptimizedTensors(const PythonApi& api, PythonNames& names, PyObj* tensor_type,
                          PyObj* optimizer, OptimizedTensors* tensors) noexcept;

}  // namespace nanwatch
