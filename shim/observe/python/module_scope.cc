// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/module_scope.h"

#include <cstddef>
#include <exception>

#include "shim/observe/python/names/layer_table.h"
#include "shim/observe/python/python_bridge.h"

namespace nanwatch {
namespace {

// Slot numbers of the stable ABI (typeslots.h).
constexpr int kSlotTpCall = 50;
constexpr int kSlotTpDescrGet = 54;
constexpr int kSlotTpGetattro = 58;
constexpr int kSlotTpRepr = 66;
constexpr int kSlotTpSetattro = 69;
constexpr int kSlotTpMembers = 72;
constexpr int kSlotTpMethods = 64;
constexpr int kMemberPySsize = 19;  // T_PYSSIZET
constexpr int kMemberReadOnly = 1;
// Set in a vectorcall's argument count when the callee may overwrite args[-1].
constexpr size_t kArgumentsOffsetBit = size_t{1} << (8 * sizeof(size_t) - 1);

struct Descriptor {
  PyObj head;
  PyVectorcall call;
  PyObj* original;  // owned for ever, as is the descriptor itself
  PyVectorcall original_call;
  PyObj* weak_references;
  PythonBridge* bridge;
};

}  // namespace

// What the functions of the descriptor's type may do with the bridge.
struct ModuleCall {
  static Descriptor* Of(PyObj* self) noexcept { return reinterpret_cast<Descriptor*>(self); }
  static const PythonApi& Api(PyObj* self) noexcept { return Of(self)->bridge->api_; }

  // None of these is noexcept: a daemon thread that outlives Python is ended by forced unwinding
  // through them.
  static PyObj* Run(PyObj* self, PyObj* const* args, size_t nargsf, PyObj* names);
  static bool Enter(PythonBridge& bridge, ScopeStack& stack, PyObj* const* args, size_t count,
                    PyObj* names);
  static PyObj* Get(PyObj* self, PyObj* instance, PyObj* type);
  static PyObj* GetAttribute(PyObj* self, PyObj* name);
  static int SetAttribute(PyObj* self, PyObj* name, PyObj* value);
  static PyObj* Repr(PyObj* self);
  static PyObj* Reduce(PyObj* self, PyObj* unused);
};

PyObj* ModuleCall::Run(PyObj* self, PyObj* const* args, size_t nargsf, PyObj* names) {
  const Descriptor* descriptor = Of(self);
  const size_t count = nargsf & ~kArgumentsOffsetBit;
  if (count == 0) [[unlikely]]
    return descriptor->original_call(descriptor->original, args, nargsf, names);
  ScopeStack* stack = &scope_stack;
  const ScopeStack saved = *stack;
  const bool optimized = Enter(*descriptor->bridge, *stack, args, count, names);
  stack->depth = saved.depth + 1;
  stack->compiled_region = false;
  PyObj* result = descriptor->original_call(descriptor->original, args, nargsf, names);
  stack = &scope_stack;  // the call may have come back on another thread (greenlets)
  if ((stack->compiled_region || optimized) && result != nullptr) [[unlikely]] {
    descriptor->bridge->HandOutResult(result, args + 1, count - 1, names);
  }
  if (stack->module_results_wanted && result != nullptr) [[unlikely]]
    descriptor->bridge->HandOutModuleResult(result);
  if (saved.depth == 0 && stack->result_wanted && result != nullptr) [[unlikely]]
    descriptor->bridge->HandOutRootResult(result);
  *stack = saved;  // whatever happened inside, an exception included
  return result;
}

// Sets the layer (and, outermost, the root) of the call that begins; whether its module is an
// OptimizedModule.
inline bool ModuleCall::Enter(PythonBridge& bridge, ScopeStack& stack, PyObj* const* args,
                              size_t count, PyObj* names) {
  PyObj* module = args[0];
  if (stack.depth == 0) return bridge.EnterRoot(module, args + 1, count - 1, names);
  const ModuleEntry* entry = bridge.layers_.Find(module);
  const bool known = entry != nullptr && entry->type == module->type &&
                     (entry->root == stack.outermost ||
                      (entry->root != nullptr && bridge.tree_.Alive(*entry->root)));
  if (!known) [[unlikely]]
    entry = bridge.EnterUnknown(module, stack.outermost);
  if (entry == nullptr) return false;
  if (entry->layer != nullptr) stack.top = entry->layer;  // else it stays the caller's
  return entry->optimized;
}

PyObj* ModuleCall::Get(PyObj* self, PyObj* instance, PyObj*) {
  const PythonApi& api = Api(self);
  if (instance != nullptr && instance != api.none) return api.PyMethod_New(self, instance);
  api.Py_IncRef(self);
  return self;
}

PyObj* ModuleCall::GetAttribute(PyObj* self, PyObj* name) {
  const PythonApi& api = Api(self);
  PyObj* original = Of(self)->original;
  if (api.PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) {
    api.Py_IncRef(original);
    return original;
  }
  // These two a type always answers itself, with its own.
  if (api.PyUnicode_CompareWithASCIIString(name, "__module__") == 0 ||
      api.PyUnicode_CompareWithASCIIString(name, "__doc__") == 0) {
    return api.PyObject_GetAttr(original, name);
  }
  PyObj* own = api.PyObject_GenericGetAttr(self, name);
  if (own != nullptr || api.PyErr_ExceptionMatches(*api.attribute_error) == 0) return own;
  api.PyErr_Clear();
  return api.PyObject_GetAttr(original, name);
}

int ModuleCall::SetAttribute(PyObj* self, PyObj* name, PyObj* value) {
  return Api(self).PyObject_SetAttr(Of(self)->original, name, value);
}

PyObj* ModuleCall::Repr(PyObj* self) { return Api(self).PyObject_Repr(Of(self)->original); }

// Pickled as getattr(torch.nn.Module, "__call__"), so that it loads where nanwatch is absent.
PyObj* ModuleCall::Reduce(PyObj* self, PyObj*) {
  const PythonApi& api = Api(self);
  PyObj* getattr = api.PyDict_GetItemString(api.PyEval_GetBuiltins(), "getattr");
  const PyOwned name(api, api.PyUnicode_FromString("__call__"));
  if (getattr == nullptr || !name) return nullptr;
  const PyOwned arguments(api,
                          api.PyTuple_Pack(2, Of(self)->bridge->scope_.module_class_, name.get()));
  return arguments ? api.PyTuple_Pack(2, getattr, arguments.get()) : nullptr;
}

void ModuleScope::TryInstall() {
  if (installed() || failed_) return;
  const KeptError error(bridge_.api_);
  try {
    if (PyObj* module_class = ReadyModuleClass()) {
      failed_ = !Replace(module_class);
      if (!failed_) installed_.store(true, std::memory_order_release);
    }
  } catch (const std::exception&) {
    failed_ = true;  // out of memory
  }
}

// torch.nn.Module, owned, once its module has been imported to the end.
PyObj* ModuleScope::ReadyModuleClass() const {
  const PythonApi& api = bridge_.api_;
  PyObj* module = api.ImportedModule("torch.nn.modules.module");
  return module == nullptr ? nullptr : api.AttributeOrNull(module, "Module");
}

bool ModuleScope::Replace(PyObj* module_class) {
  const PythonApi& api = bridge_.api_;
  module_class_ = module_class;
  const PyOwned original(api, api.AttributeOrNull(module_class, "__call__"));
  // Anything but a plain function was put there by somebody else, and is not ours to replace.
  if (!original || original.get()->type != api.function_type || !bridge_.Prepare(module_class))
    return false;
  if (!MakeDescriptor(original.get())) return false;
  if (api.PyObject_SetAttrString(module_class, "__call__", descriptor_) != 0) return false;
  ReplaceDynamoCopies(original.get());
  return true;
}

bool ModuleScope::MakeDescriptor(PyObj* original) {
  static PyMember members[] = {{"__vectorcalloffset__", kMemberPySsize, offsetof(Descriptor, call),
                                kMemberReadOnly, nullptr},
                               {"__weaklistoffset__", kMemberPySsize,
                                offsetof(Descriptor, weak_references), kMemberReadOnly, nullptr},
                               {}};
  static PyMethod methods[] = {{"__reduce__", ModuleCall::Reduce, kPyMethodNoArguments, nullptr},
                               {}};
  const PythonApi& api = bridge_.api_;
  PyTypeSlot slots[] = {{kSlotTpCall, reinterpret_cast<void*>(api.PyVectorcall_Call)},
                        {kSlotTpDescrGet, reinterpret_cast<void*>(ModuleCall::Get)},
                        {kSlotTpGetattro, reinterpret_cast<void*>(ModuleCall::GetAttribute)},
                        {kSlotTpSetattro, reinterpret_cast<void*>(ModuleCall::SetAttribute)},
                        {kSlotTpRepr, reinterpret_cast<void*>(ModuleCall::Repr)},
                        {kSlotTpMembers, members},
                        {kSlotTpMethods, methods},
                        {0, nullptr}};
  PyTypeSpec spec{.name = "nanwatch.module_call",
                  .basic_size = sizeof(Descriptor),
                  .item_size = 0,
                  .flags = kPyFlagDefault | kPyFlagHaveVectorcall | kPyFlagMethodDescriptor,
                  .slots = slots};
  PyObj* type = api.PyType_FromSpec(&spec);
  PyObj* object = type == nullptr ? nullptr : api.PyType_GenericAlloc(type, 0);
  if (object == nullptr) return false;
  Descriptor* descriptor = ModuleCall::Of(object);
  descriptor->call = ModuleCall::Run;
  descriptor->original = original;
  descriptor->original_call = api.PyVectorcall_Function == nullptr
                                  ? api.function_vectorcall
                                  : api.PyVectorcall_Function(original);
  descriptor->bridge = &bridge_;
  api.Py_IncRef(original);
  descriptor_ = object;
  return descriptor->original_call != nullptr;
}

// Dynamo took a copy of Module.__call__ when it was imported and compares by identity.
void ModuleScope::ReplaceDynamoCopies(PyObj* original) const {
  const PythonApi& api = bridge_.api_;
  for (const char* name : {"torch._dynamo.utils", "torch._dynamo.variables.nn_module"}) {
    PyObj* module = api.LoadedModule(name);
    if (module == nullptr) continue;
    const PyOwned copy(api, api.AttributeOrNull(module, "unpatched_nn_module_call"));
    if (!copy || copy.get() != original) continue;
    if (api.PyObject_SetAttrString(module, "unpatched_nn_module_call", descriptor_) != 0)
      api.PyErr_Clear();
  }
}

}  // namespace nanwatch
