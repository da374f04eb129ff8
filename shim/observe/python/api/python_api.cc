// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/api/python_api.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace nanwatch {
namespace {

constexpr int kOldestMinor = 10;
constexpr int kNewestMinor = 14;

template <typename T>
bool Take(T& target, const char* name) noexcept {
  target = reinterpret_cast<T>(dlsym(RTLD_DEFAULT, name));
  return target != nullptr;
}

}  // namespace

PythonPresence PythonApi::Resolve() noexcept {
  if (!Take(Py_GetVersion, "Py_GetVersion") || !Take(Py_IsInitialized, "Py_IsInitialized")) {
    return PythonPresence::kAbsent;
  }
  // "3.13.0 experimental free-threading build (main, ...) [GCC ...]": without a GIL nothing here
  // has its lock.
  const char* version = Py_GetVersion();
  int major = 0;
  if (sscanf(version, "%d.%d", &major, &minor) != 2 || major != 3 || minor < kOldestMinor ||
      minor > kNewestMinor || strstr(version, "free-threading") != nullptr) {
    return PythonPresence::kUnsupported;
  }
  bool all = true;
#define NANWATCH_TAKE(name, type) all = Take(name, #name) && all;
  NANWATCH_PYTHON_FUNCTIONS(NANWATCH_TAKE)
#undef NANWATCH_TAKE
  all = (Take(Py_IsFinalizing, "Py_IsFinalizing") || Take(Py_IsFinalizing, "_Py_IsFinalizing")) &&
        all;
  all = (Take(PyVectorcall_Function, "PyVectorcall_Function") ||
         Take(function_vectorcall, "_PyFunction_Vectorcall")) &&
        all;
  all = Take(code_type, "PyCode_Type") && all;
  all = Take(function_type, "PyFunction_Type") && all;
  all = Take(float_type, "PyFloat_Type") && all;
  all = Take(int_type, "PyLong_Type") && all;
  all = Take(list_type, "PyList_Type") && all;
  all = Take(tuple_type, "PyTuple_Type") && all;
  all = Take(none, "_Py_NoneStruct") && all;
  all = Take(true_object, "_Py_TrueStruct") && all;
  all = Take(attribute_error, "PyExc_AttributeError") && all;
  static_cast<void>(Take(runtime, "_PyRuntime"));  // only 3.13 and later need it
  return all ? PythonPresence::kUsable : PythonPresence::kUnsupported;
}

PyObj* PythonApi::LoadedModule(const char* name) const {
  PyObj* modules = PyImport_GetModuleDict();
  PyObj* module = modules == nullptr ? nullptr : PyDict_GetItemString(modules, name);
  return module == none ? nullptr : module;  // None marks a blocked import
}

PyObj* PythonApi::ImportedModule(const char* name) const {
  PyObj* module = LoadedModule(name);
  if (module == nullptr) return nullptr;
  const PyOwned spec(*this, AttributeOrNull(module, "__spec__"));
  if (!spec) return nullptr;
  const PyOwned initializing(*this, AttributeOrNull(spec.get(), "_initializing"));
  return initializing && PyObject_IsTrue(initializing.get()) != 0 ? nullptr : module;
}

PyObj* PythonApi::Define(const char* text, const char* name,
                         std::initializer_list<Global> globals) const {
  const PyOwned names(*this, PyDict_New());
  if (!names) return nullptr;
  for (const Global& global : globals) {
    PyDict_SetItemString(names.get(), global.name, global.value);
  }
  constexpr PyObj* kEnd = nullptr;
  PyObj* builtins = PyEval_GetBuiltins();
  PyObj* compile = PyDict_GetItemString(builtins, "compile");
  PyObj* exec = PyDict_GetItemString(builtins, "exec");
  const PyOwned source(*this, PyUnicode_FromString(text));
  const PyOwned file(*this, PyUnicode_FromString("<nanwatch>"));
  const PyOwned mode(*this, PyUnicode_FromString("exec"));
  if (compile == nullptr || exec == nullptr || !source || !file || !mode) return nullptr;
  const PyOwned code(
      *this, PyObject_CallFunctionObjArgs(compile, source.get(), file.get(), mode.get(), kEnd));
  const PyOwned done(
      *this, code ? PyObject_CallFunctionObjArgs(exec, code.get(), names.get(), kEnd) : nullptr);
  if (!done) {
    PyErr_Clear();
    return nullptr;
  }
  PyObj* defined = PyDict_GetItemString(names.get(), name);
  if (defined != nullptr) Py_IncRef(defined);
  return defined;
}

bool PythonApi::ReplaceFunction(PyObj* holder, const char* name, const Function& ours,
                                PyMethod* tell) const {
  PyObj* compiler = LoadedModule("torch.compiler");
  if (compiler == nullptr) return false;
  const PyOwned original(*this, AttributeOrNull(holder, name));
  const PyOwned is_compiling(*this, AttributeOrNull(compiler, "is_compiling"));
  const PyOwned told(*this, PyCFunction_NewEx(tell, nullptr, nullptr));
  if (!original || !is_compiling || !told) return false;
  const PyOwned made(*this, Define(ours.text, ours.name,
                                   {{"call", original.get()},
                                    {"is_compiling", is_compiling.get()},
                                    {"tell", told.get()}}));
  if (made && PyObject_SetAttrString(holder, name, made.get()) == 0) return true;
  PyErr_Clear();
  return false;
}

void PythonApi::CallSoon(std::atomic<bool>* asked, int (*call)(void*),
                         void* context) const noexcept {
  if (asked->exchange(true)) return;
  if (!Running() || Py_AddPendingCall(call, context) != 0) *asked = false;
}

PyObj* PythonApi::AttributeOrNull(PyObj* object, const char* name) const {
  PyObj* value = PyObject_GetAttrString(object, name);
  if (value == nullptr) PyErr_Clear();
  return value;
}

PyObj* PythonApi::ItemOf(PyObj* sequence, size_t place) const {
  const auto index = static_cast<ssize_t>(place);
  if (HasFlag(sequence, kPyFlagTuple)) {
    return PyTuple_Size(sequence) > index ? PyTuple_GetItem(sequence, index) : nullptr;
  }
  if (HasFlag(sequence, kPyFlagList)) {
    return PyList_Size(sequence) > index ? PyList_GetItem(sequence, index) : nullptr;
  }
  return nullptr;
}

const char* PythonApi::Text(PyObj* object) const {
  if (object == nullptr || !HasFlag(object, kPyFlagUnicode)) return nullptr;
  const char* text = PyUnicode_AsUTF8AndSize(object, nullptr);
  if (text == nullptr) PyErr_Clear();  // lone surrogates
  return text;
}

}  // namespace nanwatch
