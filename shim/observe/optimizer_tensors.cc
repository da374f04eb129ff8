#include "shim/observe/optimizer_tensors.h"

#include <ATen/core/Tensor.h>

#include <exception>

#include "shim/observe/python_names.h"

namespace nanwatch {
namespace {

void AddGroup(const PythonApi& api, PythonNames& names, PyObj* tensor_type, PyObj* group,
              OptimizedTensors* tensors) {
  if (!api.HasFlag(group, kPyFlagDict)) return;
  PyObj* parameters = api.PyDict_GetItemString(group, "params");
  if (parameters == nullptr || !api.HasFlag(parameters, kPyFlagList)) return;
  double eps = -1;
  bool fused = false;
  if (tensors->for_stats) {
    // Exactly a float: of anything else Python would run code of its own to make one.
    PyObj* given = api.PyDict_GetItemString(group, "eps");
    if (given != nullptr && given->type == api.float_type) eps = api.PyFloat_AsDouble(given);
    fused = api.PyDict_GetItemString(group, "fused") == api.true_object;
  }
  const ptrdiff_t count = api.PyList_Size(parameters);
  for (ptrdiff_t i = 0; i < count; ++i) {
    PyObj* object = api.PyList_GetItem(parameters, i);
    if (object == nullptr || api.PyType_IsSubtype(object->type, tensor_type) == 0) continue;
    const at::TensorBase* parameter = names.TensorOf(object);
    if (parameter == nullptr || !parameter->defined()) continue;
    const c10::TensorImpl* impl = parameter->unsafeGetTensorImpl();
    OptimizedTensor& added = tensors->list.emplace_back();
    added.gradient = impl->grad();
    added.parameter = impl;
    added.requires_grad = parameter->requires_grad();
    if (!tensors->for_stats) continue;
    added.held = *parameter;
    added.eps = eps;
    added.fused = fused;
  }
}

}  // namespace

bool ReadOptimizedTensors(const PythonApi& api, PythonNames& names, PyObj* tensor_type,
                          PyObj* optimizer, OptimizedTensors* tensors) noexcept try {
  // A thread without a state of Python's own has no frame that runs an optimizer.
  if (!api.Running() || api.PyGILState_GetThisThreadState() == nullptr) return false;
  const Gil gil(api);
  const PyOwned groups(api, api.AttributeOrNull(optimizer, "param_groups"));
  if (!groups || !api.HasFlag(groups.get(), kPyFlagList)) return false;
  const ptrdiff_t count = api.PyList_Size(groups.get());
  for (ptrdiff_t i = 0; i < count; ++i) {
    PyObj* group = api.PyList_GetItem(groups.get(), i);
    if (group != nullptr) AddGroup(api, names, tensor_type, group, tensors);
  }
  // Not as an attribute: where there is none, making the exception would cost more than all else.
  const PyOwned own(api, api.AttributeOrNull(optimizer, "__dict__"));
  PyObj* found_inf = own && api.HasFlag(own.get(), kPyFlagDict)
                         ? api.PyDict_GetItemString(own.get(), "found_inf")
                         : nullptr;
  if (found_inf != nullptr && api.PyType_IsSubtype(found_inf->type, tensor_type) != 0) {
    const at::TensorBase* tensor = names.TensorOf(found_inf);
    if (tensor != nullptr) tensors->found_inf = *tensor;
  }
  return true;
} catch (const std::exception&) {
  *tensors = {};
  return false;
}

}  // namespace nanwatch
