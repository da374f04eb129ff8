// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/local_tensor.h"

#include <cstring>

#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/python/names/python_names.h"

namespace nanwatch {
namespace {

// By the name of its class: another subclass may run code of its own when it is asked.
bool IsDistributed(const PyObj* object) {
  const char* const name = PythonApi::NameOfType(object->type);
  return name != nullptr && strcmp(name, "DTensor") == 0;
}

}  // namespace

const at::TensorBase& LocalOf(const PythonApi& api, PythonNames& names,
                              const at::TensorBase& tensor) noexcept {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(c10::DispatchKey::Python)) return tensor;
  const void* subclass = PythonObjectIn(impl->pyobj_slot());
  auto* object = static_cast<PyObj*>(const_cast<void*>(subclass));
  if (object == nullptr || !IsDistributed(object)) return tensor;
  // The object goes on holding it.
  const PyOwned local(api, api.AttributeOrNull(object, "_local_tensor"));
  const at::TensorBase* held = local ? names.TensorOf(local.get()) : nullptr;
  return held != nullptr ? *held : tensor;
}

}  // namespace nanwatch
