#include "shim/observe/optimizer_tensors.h"

#include <ATen/core/Tensor.h>

#include <exception>

#include "shim/observe/python_names.h"

namespace nanwatch {
namespace {

void AddGroup(const PythonApi& api, PythonNames& names, PyObj* tensor_type, PyObj* group,
              std::vector<OptimizedTensor>* tensors) {
  if (!api.HasFlag(group, kPyFlagDict)) return;
  PyObj* parameters = api.PyDict_GetItemString(group, "params");
  if (parameters == nullptr || !api.HasFlag(parameters, kPyFlagList)) return;
  const ptrdiff_t count = api.PyList_Size(parameters);
  for (ptrdiff_t i = 0; i < count; ++i) {
    PyObj* object = api.PyList_GetItem(parameters, i);
    if (object == nullptr || api.PyType_IsSubtype(object->type, tensor_type) == 0) continue;
    const at::TensorBase* parameter = names.TensorOf(object);
    if (parameter == nullptr || !parameter->defined()) continue;
    const c10::TensorImpl* impl = parameter->unsafeGetTensorImpl();
    tensors->push_back({impl->grad(), impl, parameter->requires_grad()});
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
    if (group != nullptr) AddGroup(api, names, tensor_type, group, &tensors->list);
  }
  const PyOwned found_inf(api, api.AttributeOrNull(optimizer, "found_inf"));
  if (found_inf && api.PyType_IsSubtype(found_inf.get()->type, tensor_type) != 0) {
    const at::TensorBase* tensor = names.TensorOf(found_inf.get());
    if (tensor != nullptr) tensors->found_inf = *tensor;
  }
  return true;
} catch (const std::exception&) {
  *tensors = {};
  return false;
}

}  // namespace nanwatch
