// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/script_views.h"

#include "shim/observe/python/names/class_id.h"

namespace nanwatch::script_views {
namespace {

constexpr char kModule[] = "torch.jit._script";

}  // namespace

PyObj* ModulesBehind(const PythonApi& api, PyObj* view) {
  if (!ClassId(api, view->type).Is(kModule, "OrderedModuleDict")) return nullptr;
  const PyOwned modules(api, api.AttributeOrNull(view, "_python_modules"));
  return modules && api.HasFlag(modules.get(), kPyFlagDict) ? modules.get() : nullptr;
}

PyObj* TensorsBehind(const PythonApi& api, PyObj* view) {
  if (!ClassId(api, view->type).Is(kModule, "OrderedDictWrapper")) return nullptr;
  // Of C++, so that no code of Python's runs here.
  const PyOwned held(api, api.AttributeOrNull(view, "_c"));
  const PyOwned items(api, held ? api.AttributeOrNull(held.get(), "items") : nullptr);
  if (!items) return nullptr;
  constexpr PyObj* kEnd = nullptr;
  PyObj* list = api.PyObject_CallFunctionObjArgs(items.get(), kEnd);
  if (list == nullptr) api.PyErr_Clear();
  return list;
}

}  // namespace nanwatch::script_views
