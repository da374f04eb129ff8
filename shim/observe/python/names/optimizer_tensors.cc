// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/optimizer_tensors.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <exception>

#include "shim/observe/python/names/python_names.h"

namespace nanwatch {
namespace {

// Only what is exactly a float: of anything else Python would run code of its own to make one. A
// bound may be infinite, a rate may not.
bool HoldsBadNumber(const PythonApi& api, PyObj* group) {
  PyObj* rate = api.PyDict_GetItemString(group, "lr");
  PyObj* name = nullptr;
  PyObj* value = nullptr;
  for (ptrdiff_t at = 0; api.PyDict_Next(group, &at, &name, &value) != 0;) {
    if (value->type != api.float_type) continue;
    const double number = api.PyFloat_AsDouble(value);
    if (std::isnan(number) || (value == rate && std::isinf(number))) return true;
  }
  return false;
}

void AddGroup(const PythonApi& api, PythonNames& names, PyObj* tensor_type, PyObj* group,
              OptimizedTensors* tensors) {
  if (!api.HasFlag(group, kPyFlagDict)) return;
  PyObj* parameters = api.PyDict_GetItemString(group, "params");
  if (parameters == nullptr || !api.HasFlag(parameters, kPyFlagList)) return;
  double eps = -1;
  bool fused = false;
  using For = OptimizedTensors::For;
  if (tensors->what == For::kGradients && !tensors->number_bad) {
    tensors->number_bad = HoldsBadNumber(api, group);
  }
  if (tensors->what == For::kStats) {
    // Exactly a float: of anything else Python would run code of its own to make one.
    PyObj* given = api.PyDict_GetItemString(group, "eps");
    if (given != nullptr && given->type == api.float_type) eps = api.PyFloat_AsDouble(given);
    fused = api.PyDict_GetItemString(group, "fused") == api.true_object;
  }
  const ptrdiff_t count = api.PyList_Size(parameters);
  if (count > 0 && tensors->what != For::kWritten) {
    tensors->list.reserve(tensors->list.size() + static_cast<size_t>(count));
  }
  for (ptrdiff_t i = 0; i < count; ++i) {
    PyObj* object = api.PyList_GetItem(parameters, i);
    if (object == nullptr || api.PyType_IsSubtype(object->type, tensor_type) == 0) continue;
    const at::TensorBase* parameter = names.TensorOf(object);
    if (parameter == nullptr || !parameter->defined()) continue;
    const c10::TensorImpl* impl = parameter->unsafeGetTensorImpl();
    if (tensors->what == For::kWritten) {
      tensors->written.push_back({*parameter, impl, false, false});
      continue;
    }
    OptimizedTensor& added = tensors->list.emplace_back();
    added.gradient = impl->grad();
    added.parameter = impl;
    added.requires_grad = parameter->requires_grad();
    if (tensors->what != For::kStats) continue;
    added.held = *parameter;
    added.eps = eps;
    added.fused = fused;
  }
}

// `state` maps parameters to what is kept for them, by name.
void AddStates(const PythonApi& api, PythonNames& names, PyObj* tensor_type, PyObj* state,
               OptimizedTensors* tensors) {
  if (state == nullptr || !api.HasFlag(state, kPyFlagDict)) return;
  PyObj* object = nullptr;
  PyObj* kept = nullptr;
  constexpr size_t kKeptByMost = 3;  // AdamW: two moments, and a count of steps
  tensors->written.reserve(tensors->written.size() * (1 + kKeptByMost));
  for (ptrdiff_t at = 0; api.PyDict_Next(state, &at, &object, &kept) != 0;) {
    if (api.PyType_IsSubtype(object->type, tensor_type) == 0 || !api.HasFlag(kept, kPyFlagDict)) {
      continue;
    }
    const at::TensorBase* parameter = names.TensorOf(object);
    PyObj* name = nullptr;
    PyObj* value = nullptr;
    for (ptrdiff_t inner = 0; api.PyDict_Next(kept, &inner, &name, &value) != 0;) {
      if (api.PyType_IsSubtype(value->type, tensor_type) == 0) continue;
      const at::TensorBase* tensor = names.TensorOf(value);
      if (tensor == nullptr || !tensor->defined()) continue;
      const bool is_count = tensor->dim() == 0 && parameter != nullptr && parameter->dim() != 0;
      tensors->written.push_back({*tensor,
                                  parameter != nullptr ? parameter->unsafeGetTensorImpl() : nullptr,
                                  true, is_count});
    }
  }
}

}  // namespace

bool ReadOptimizedTensors(const PythonApi& api, PythonNames& names, PyObj* tensor_type,
                          PyObj* optimizer, OptimizedTensors* tensors) noexcept try {
  // A thread without a state of Python's own has no frame that runs an optimizer.
  if (!api.Running() || api.PyGILState_GetThisThreadState() == nullptr) return false;
  const Gil gil(api);
  if (tensors->what != OptimizedTensors::For::kSkip) {
    const PyOwned groups(api, api.AttributeOrNull(optimizer, "param_groups"));
    if (!groups || !api.HasFlag(groups.get(), kPyFlagList)) return false;
    const ptrdiff_t count = api.PyList_Size(groups.get());
    for (ptrdiff_t i = 0; i < count; ++i) {
      PyObj* group = api.PyList_GetItem(groups.get(), i);
      if (group != nullptr) AddGroup(api, names, tensor_type, group, tensors);
    }
  }
  // Not as an attribute: where there is none, making the exception would cost more than all else.
  const PyOwned own(api, api.AttributeOrNull(optimizer, "__dict__"));
  if (!own || !api.HasFlag(own.get(), kPyFlagDict)) return true;
  if (tensors->what == OptimizedTensors::For::kWritten) {
    AddStates(api, names, tensor_type, api.PyDict_GetItemString(own.get(), "state"), tensors);
    return true;
  }
  const auto find = [&](const char* name, at::TensorBase* found) {
    PyObj* object = api.PyDict_GetItemString(own.get(), name);
    if (object == nullptr || api.PyType_IsSubtype(object->type, tensor_type) == 0) return;
    const at::TensorBase* tensor = names.TensorOf(object);
    if (tensor != nullptr) *found = *tensor;
  };
  find("found_inf", &tensors->found_inf);
  find("grad_scale", &tensors->grad_scale);
  return true;
} catch (const std::exception&) {
  *tensors = {};
  return false;
}

}  // namespace nanwatch
