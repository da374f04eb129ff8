// SPDX-License-Identifier: Apache-2.0
// The part of CPython's C API that the observer uses, resolved at run time.
//
// One observer serves every CPython from 3.10 to 3.14 and C++ programs without Python, so Python.h
// is not included: its structs and inline functions differ between those. Only exported functions
// are used; the two fields of an object's head are read directly, which every build with a GIL has
// at the same place. Unless said otherwise a function of this table needs the GIL, returns a new
// reference and reports failure by null or -1 with Python's error indicator set, exactly as the C
// API documents it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace nanwatch {

struct PyObj {
  intptr_t refcnt;
  PyObj* type;  // a type is an object too
};

using PyVectorcall = PyObj* (*)(PyObj* callable, PyObj* const* args, size_t nargsf, PyObj* names);

// PyType_Spec and what it points to; unchanged since 3.5.
struct PyTypeSlot {
  int slot;
  void* function;
};
struct PyTypeSpec {
  const char* name;
  int basic_size;
  int item_size;
  unsigned int flags;
  PyTypeSlot* slots;
};
struct PyMember {
  const char* name;
  int type;
  ptrdiff_t offset;
  int flags;
  const char* doc;
};
struct PyMethod {
  const char* name;
  PyObj* (*function)(PyObj* self, PyObj* argument);
  int flags;
  const char* doc;
};
// PyMethod::flags, part of the stable ABI: METH_VARARGS, METH_KEYWORDS (whose functions take a
// third argument), METH_NOARGS, METH_O.
inline constexpr int kPyMethodArguments = 1;
inline constexpr int kPyMethodNamed = 2;
inline constexpr int kPyMethodNoArguments = 4;
inline constexpr int kPyMethodOneArgument = 8;
struct PyGetSet {
  const char* name;
  PyObj* (*get)(PyObj* self, void* closure);
  int (*set)(PyObj* self, PyObj* value, void* closure);
  const char* doc;
  void* closure;
};

// Type flags, part of the stable ABI.
inline constexpr unsigned long kPyFlagHeapType = 1UL << 9;
inline constexpr unsigned long kPyFlagHaveVectorcall = 1UL << 11;
inline constexpr unsigned long kPyFlagMethodDescriptor = 1UL << 17;
inline constexpr unsigned long kPyFlagDefault = 1UL << 18;
inline constexpr unsigned long kPyFlagList = 1UL << 25;
inline constexpr unsigned long kPyFlagTuple = 1UL << 26;
inline constexpr unsigned long kPyFlagUnicode = 1UL << 28;
inline constexpr unsigned long kPyFlagDict = 1UL << 29;

enum class PythonPresence : uint8_t {
  kAbsent,       // no Python in the process, or one that hides its symbols
  kUnsupported,  // free-threaded, older than 3.10 or newer than 3.14
  kUsable,
};

// X(name, type): every function that has to be there.
#define NANWATCH_PYTHON_FUNCTIONS(X)                                \
  X(Py_IsInitialized, int (*)())                                    \
  X(Py_GetVersion, const char* (*)())                               \
  X(Py_AddPendingCall, int (*)(int (*)(void*), void*))              \
  X(Py_IncRef, void (*)(PyObj*))                                    \
  X(Py_DecRef, void (*)(PyObj*))                                    \
  X(PyErr_Fetch, void (*)(PyObj**, PyObj**, PyObj**))               \
  X(PyErr_Restore, void (*)(PyObj*, PyObj*, PyObj*))                \
  X(PyErr_Clear, void (*)())                                        \
  X(PyErr_ExceptionMatches, int (*)(PyObj*))                        \
  X(PyImport_GetModuleDict, PyObj* (*)())                           \
  X(PyEval_GetBuiltins, PyObj* (*)())                               \
  X(PyEval_GetFrame, PyObj* (*)())                                  \
  X(PyFrame_GetCode, PyObj* (*)(PyObj*))                            \
  X(PyFrame_GetLineNumber, int (*)(PyObj*))                         \
  X(PyCode_Addr2Line, int (*)(PyObj*, int))                         \
  X(PyGILState_GetThisThreadState, void* (*)())                     \
  X(PyGILState_Check, int (*)())                                    \
  X(PyEval_SaveThread, void* (*)())                                 \
  X(PyEval_RestoreThread, void (*)(void*))                          \
  X(PyGILState_Ensure, int (*)())                                   \
  X(PyGILState_Release, void (*)(int))                              \
  X(PyDict_GetItemString, PyObj* (*)(PyObj*, const char*))          \
  X(PyDict_New, PyObj* (*)())                                       \
  X(PyDict_SetItemString, int (*)(PyObj*, const char*, PyObj*))     \
  X(PyObject_Call, PyObj* (*)(PyObj*, PyObj*, PyObj*))              \
  X(PyObject_CallFunctionObjArgs, PyObj* (*)(PyObj*, ...))          \
  X(PyCFunction_NewEx, PyObj* (*)(PyMethod*, PyObj*, PyObj*))       \
  X(PyThreadState_SetAsyncExc, int (*)(unsigned long, PyObj*))      \
  X(PyThread_get_thread_ident, unsigned long (*)())                 \
  X(PyDict_Next, int (*)(PyObj*, ptrdiff_t*, PyObj**, PyObj**))     \
  X(PyTuple_Size, ptrdiff_t (*)(PyObj*))                            \
  X(PyTuple_GetItem, PyObj* (*)(PyObj*, ptrdiff_t))                 \
  X(PyTuple_Pack, PyObj* (*)(ptrdiff_t, ...))                       \
  X(PyList_Size, ptrdiff_t (*)(PyObj*))                             \
  X(PyList_GetItem, PyObj* (*)(PyObj*, ptrdiff_t))                  \
  X(PyObject_GetAttr, PyObj* (*)(PyObj*, PyObj*))                   \
  X(PyObject_GetAttrString, PyObj* (*)(PyObj*, const char*))        \
  X(PyObject_SetAttr, int (*)(PyObj*, PyObj*, PyObj*))              \
  X(PyObject_SetAttrString, int (*)(PyObj*, const char*, PyObj*))   \
  X(PyObject_GenericGetAttr, PyObj* (*)(PyObj*, PyObj*))            \
  X(PyFloat_AsDouble, double (*)(PyObj*))                           \
  X(PyObject_IsTrue, int (*)(PyObj*))                               \
  X(PyObject_Repr, PyObj* (*)(PyObj*))                              \
  X(PyGC_Disable, int (*)())                                        \
  X(PyGC_Enable, int (*)())                                         \
  X(PyVectorcall_Call, PyObj* (*)(PyObj*, PyObj*, PyObj*))          \
  X(PyMethod_New, PyObj* (*)(PyObj*, PyObj*))                       \
  X(PyDescr_NewMethod, PyObj* (*)(PyObj*, PyMethod*))               \
  X(PyDescr_NewGetSet, PyObj* (*)(PyObj*, PyGetSet*))               \
  X(PyType_FromSpec, PyObj* (*)(PyTypeSpec*))                       \
  X(PyType_GenericAlloc, PyObj* (*)(PyObj*, ptrdiff_t))             \
  X(PyType_GetFlags, unsigned long (*)(PyObj*))                     \
  X(PyType_IsSubtype, int (*)(PyObj*, PyObj*))                      \
  X(PyWeakref_NewRef, PyObj* (*)(PyObj*, PyObj*))                   \
  X(PyUnicode_AsUTF8AndSize, const char* (*)(PyObj*, ptrdiff_t*))   \
  X(PyUnicode_CompareWithASCIIString, int (*)(PyObj*, const char*)) \
  X(PyUnicode_FromString, PyObj* (*)(const char*))                  \
  X(PyUnicode_InternFromString, PyObj* (*)(const char*))

struct PythonApi {
#define NANWATCH_FIELD(name, type) std::type_identity_t<type> name = nullptr;
  NANWATCH_PYTHON_FUNCTIONS(NANWATCH_FIELD)
#undef NANWATCH_FIELD
  int (*Py_IsFinalizing)() = nullptr;  // public from 3.13 on, with an underscore before
  PyVectorcall (*PyVectorcall_Function)(PyObj*) = nullptr;  // from 3.11 on; null before
  PyVectorcall function_vectorcall =
      nullptr;  // _PyFunction_Vectorcall, the same for every function; where that is absent
  PyObj* code_type = nullptr;         // PyCode_Type
  PyObj* function_type = nullptr;     // PyFunction_Type
  PyObj* float_type = nullptr;        // PyFloat_Type
  PyObj* int_type = nullptr;          // PyLong_Type
  PyObj* list_type = nullptr;         // PyList_Type
  PyObj* tuple_type = nullptr;        // PyTuple_Type
  PyObj* none = nullptr;              // _Py_NoneStruct
  PyObj* true_object = nullptr;       // _Py_TrueStruct
  PyObj** attribute_error = nullptr;  // PyExc_AttributeError, set once Python is initialised
  const unsigned char* runtime =
      nullptr;    // _PyRuntime, which begins with its debug offsets from 3.13 on
  int minor = 0;  // 11 for Python 3.11

  // Fills the table. Needs neither the GIL nor an initialised Python; any thread.
  [[nodiscard]] PythonPresence Resolve() noexcept;
  // Python runs and is not on its way out. No GIL needed.
  [[nodiscard]] bool Running() const noexcept {
    return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0;
  }

  [[nodiscard]] bool HasFlag(PyObj* object, unsigned long flag) const {
    return (PyType_GetFlags(object->type) & flag) != 0;
  }
  // sys.modules[name], borrowed; null when it is not there.
  [[nodiscard]] PyObj* LoadedModule(const char* name) const;
  // The same of a module that has been imported to the end.
  [[nodiscard]] PyObj* ImportedModule(const char* name) const;
  // What a text of Python's, run with these globals from a file named "<nanwatch>", calls `name`: a
  // new reference, or null with no error pending. There is no module's name among the globals:
  // torch._dynamo would look for that module.
  struct Global {
    const char* name;
    PyObj* value;
  };
  [[nodiscard]] PyObj* Define(const char* text, const char* name,
                              std::initializer_list<Global> globals) const;
  // Puts a function that Define makes of `ours.text` in the place of `holder`'s `name`. The text
  // finds what stood there as `call`, `tell` as a function, and torch.compiler's `is_compiling`.
  // False, with no error pending: it stays as it was.
  struct Function {
    const char* text;
    const char* name;
  };
  [[nodiscard]] bool ReplaceFunction(PyObj* holder, const char* name, const Function& ours,
                                     PyMethod* tell) const;
  // What a function of ours answers that has nothing to say.
  [[nodiscard]] PyObj* NewNone() const {
    Py_IncRef(none);
    return none;
  }
  // Any thread, no GIL: has Python's main thread make the call, between two of its instructions.
  // Once, as `asked` says, unless it could not be asked for now.
  void CallSoon(std::atomic<bool>* asked, int (*call)(void*), void* context) const noexcept;
  // An attribute by name, or null with no error pending.
  [[nodiscard]] PyObj* AttributeOrNull(PyObj* object, const char* name) const;
  // An item of a list's or a tuple's, borrowed; null: it has fewer, or is neither.
  [[nodiscard]] PyObj* ItemOf(PyObj* sequence, size_t place) const;
  // What a weak reference refers to, borrowed; None where it is gone. PyWeakReference.wr_object
  // stands behind the head, which ModuleTree::Prepare has proven.
  [[nodiscard]] static PyObj* WeakReferent(const PyObj* weak) noexcept {
    return *reinterpret_cast<PyObj* const*>(weak + 1);
  }
  // The name of its type, which lives as long as the type: PyTypeObject.tp_name, behind the head and
  // a size. LoaderFetch::Prove checks the place.
  [[nodiscard]] static const char* NameOfType(const PyObj* type) noexcept {
    const char* name = nullptr;
    memcpy(&name, reinterpret_cast<const unsigned char*>(type + 1) + sizeof(size_t), sizeof name);
    return name;
  }
  // A str as UTF-8, owned by the str; null with no error pending when it is not a str.
  [[nodiscard]] const char* Text(PyObj* object) const;
};

// Owns one reference. The GIL must be held where it is destroyed.
class PyOwned {
 public:
  PyOwned(const PythonApi& api, PyObj* object) noexcept : api_(api), object_(object) {}
  ~PyOwned() noexcept(false) {  // a daemon thread may be ended by forced unwinding in here
    if (object_ != nullptr) api_.Py_DecRef(object_);
  }
  PyOwned(const PyOwned&) = delete;
  PyOwned& operator=(const PyOwned&) = delete;
  [[nodiscard]] PyObj* get() const noexcept { return object_; }
  [[nodiscard]] PyObj* release() noexcept {
    PyObj* object = object_;
    object_ = nullptr;
    return object;
  }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  const PythonApi& api_;
  PyObj* object_;
};

// GIL held: sets the error that may be pending aside for a scope, and drops what is pending at its
// end.
class KeptError {
 public:
  explicit KeptError(const PythonApi& api) : api_(api) {
    api_.PyErr_Fetch(&type_, &value_, &traceback_);
  }
  ~KeptError() noexcept(false) { api_.PyErr_Restore(type_, value_, traceback_); }  // as PyOwned's
  KeptError(const KeptError&) = delete;
  KeptError& operator=(const KeptError&) = delete;

 private:
  const PythonApi& api_;
  PyObj* type_ = nullptr;
  PyObj* value_ = nullptr;
  PyObj* traceback_ = nullptr;
};

// Takes the GIL for a scope, and keeps the error that may be pending. Only on a thread that is
// about to take it anyway: see optimizer_tensors.h.
class Gil {
 public:
  explicit Gil(const PythonApi& api) : state_(api), error_(api) {}

 private:
  struct State {
    explicit State(const PythonApi& python) : api(python), state(python.PyGILState_Ensure()) {}
    ~State() { api.PyGILState_Release(state); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    const PythonApi& api;
    int state;
  };
  State state_;
  KeptError error_;
};

}  // namespace nanwatch
