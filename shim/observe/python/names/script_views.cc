// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/script_views.h"

#include <cstring>

namespace nanwatch::script_views {
namespace {

bool IsOfType(const PythonApi& api, PyObj* view, const char* class_name) {
  const PyOwned module(api, api.AttributeOrNull(view->type, "__module__"));
  const PyOwned name(api, api.AttributeOrNull(view->type, "__qualname__"));
  const char* module_text = module ? api.Text(module.get()) : nullptr;
  const char* name_text = name ? api.Text(name.get()) : nullptr;
  return module_text != nullptr && name_text != nullptr &&
         std::strcmp(module_text, "torch.jit._script") == 0 &&
         std::strcmp(name_text, class_name) == 0;
}

}  // namespace

PyObj* ModulesBehind(const PythonApi& api, PyObj* view) {
  if (!IsOfType(api, view, "OrderedModuleDict")) return nullptr;
  const PyOwned modules(api, api.AttributeOrNull(view, "_python_modules"));
  return modules && api.HasFlag(modules.get(), kPyFlagDict) ? modules.get() : nullptr;
}

PyObj* TensorsBehind(const PythonApi& api, PyObj* view) {
  if (!IsOfType(api, view, "OrderedDictWrapper")) return nullptr;
  // Of C++, so that no code of Python's runs here.
  const PyOwned held(api, api.AttributeOrNull(view, "_c"));
  const PyOwned items(api, held ? api.AttributeOrNull(held.get(), "items") : nullptr);
  if (!items) return nullptr;
  constexpr PyObj* kEnd = nullptr;
  PyObj* list = api.PyObject_CallFunctionObjArgs(items.get(), kEnd);
  if (list == nullptr) {
    api.PyErr_Clear();
  } else if (!api.HasFlag(list, kPyFlagList)) {
    api.Py_DecRef(list);
    list = nullptr;
  }
  return list;
}

}  // namespace nanwatch::script_views
