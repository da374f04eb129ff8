// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/builtin_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

namespace nanwatch {
namespace {

// A function of ours has no room for a pointer. There is one bridge per process.
BuiltinCalls* calls_of_process = nullptr;

constexpr const char* kAsking[] = {"isnan", "isinf", "isfinite"};
constexpr int kAskingCount = 3;
constexpr int kPyMethodStatic = 32;

// What stood there, for our functions to call.
PyObj* (*original_switch)(PyObj*, PyObj*) = nullptr;
PyObj* (*original_item)(PyObj*, PyObj*) = nullptr;
PyObj* (*original_float)(PyObj*, PyObj*) = nullptr;
PyObj* (*original_of_torch[kAskingCount])(PyObj*, PyObj*) = {};
PyObj* (*original_of_tensor[kAskingCount])(PyObj*, PyObj*) = {};
int (*original_set_data)(PyObj*, PyObj*, void*) = nullptr;

// Where the PyMethodDef's address stands: PyCFunctionObject.m_ml, behind the head, and
// PyMethodDescrObject.d_method, behind the head, a type and two names. PyGetSetDescrObject.d_getset
// stands there too.
constexpr size_t kInFunction = sizeof(PyObj);
constexpr size_t kInMethod = sizeof(PyObj) + 3 * sizeof(void*);

template <typename Definition = PyMethod>
Definition* MethodIn(PyObj* object, size_t offset) {
  return *reinterpret_cast<Definition**>(reinterpret_cast<unsigned char*>(object) + offset);
}

// By the kernel, which refuses where the page is read-only, and does not end the job.
template <class Pointer>
bool Store(Pointer* to, Pointer value) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const bool stored = write(ends[1], &value, sizeof value) == sizeof value &&
                      read(ends[0], to, sizeof value) == sizeof value;
  close(ends[0]);
  close(ends[1]);
  return stored;
}

PyObj* Nothing(PyObj*, PyObj*) { return nullptr; }

PyObj* CallNamed(PyObj* (*function)(PyObj*, PyObj*), PyObj* self, PyObj* arguments, PyObj* named) {
  using NamedFunction = PyObj* (*)(PyObj*, PyObj*, PyObj*);
  return reinterpret_cast<NamedFunction>(reinterpret_cast<void (*)()>(function))(self, arguments,
                                                                                 named);
}

PyObj* (*Untyped(PyObj* (*function)(PyObj*, PyObj*, PyObj*)))(PyObj*, PyObj*) {
  return reinterpret_cast<PyObj* (*)(PyObj*, PyObj*)>(reinterpret_cast<void (*)()>(function));
}

}  // namespace

void BuiltinCalls::TryExchange() {
  static PyMethod like = {"nanwatch", &Nothing, kPyMethodNoArguments, nullptr};
  if (tried_ || calls_of_process != nullptr || tensor_type_ == nullptr) return;
  const KeptError error(api_);
  PyObj* torch_c = api_.LoadedModule("torch._C");
  PyObj* autograd = api_.ImportedModule("torch.autograd");
  if (torch_c == nullptr || autograd == nullptr) return;
  tried_ = true;
  function_ = api_.PyCFunction_NewEx(&like, nullptr, nullptr);
  method_ = api_.PyDescr_NewMethod(tensor_type_, &like);
  const bool proven = function_ != nullptr && method_ != nullptr &&
                      MethodIn(function_, kInFunction) == &like &&
                      MethodIn(method_, kInMethod) == &like;
  if (!proven) return api_.PyErr_Clear();
  calls_of_process = this;
  constexpr int kNamed = kPyMethodArguments | kPyMethodNamed;
  if (callbacks_.on_switch != nullptr) {
    Exchange(autograd, "_enable_record_function", function_, kNamed, Untyped(&Switch),
             &original_switch);
  }
  if (callbacks_.on_number != nullptr) {
    Exchange(tensor_type_, "item", method_, kPyMethodNoArguments, &Item, &original_item);
    Exchange(tensor_type_, "__float__", method_, kPyMethodNoArguments, &Float, &original_float);
  }
  if (callbacks_.on_data != nullptr) ExchangeSetterOfData();
  if (callbacks_.on_asked == nullptr) return;
  const PyOwned functions(api_, api_.AttributeOrNull(torch_c, "_VariableFunctions"));
  if (!functions) return;
  ExchangeAsking<0>(functions.get());
  ExchangeAsking<1>(functions.get());
  ExchangeAsking<2>(functions.get());
}

template <int kWhich>
void BuiltinCalls::ExchangeAsking(PyObj* functions) {
  constexpr int kFlags = kPyMethodArguments | kPyMethodNamed | kPyMethodStatic;
  Exchange(functions, kAsking[kWhich], function_, kFlags, Untyped(&AskOfTorch<kWhich>),
           &original_of_torch[kWhich]);
  Exchange(tensor_type_, kAsking[kWhich], method_, kPyMethodNoArguments, &AskOfTensor<kWhich>,
           &original_of_tensor[kWhich]);
}

bool BuiltinCalls::Exchange(PyObj* holder, const char* name, PyObj* like, int flags, Function ours,
                            Function* original) const {
  const PyOwned object(api_, api_.AttributeOrNull(holder, name));
  if (!object || object.get()->type != like->type) return false;
  PyMethod* method = MethodIn(object.get(), like == function_ ? kInFunction : kInMethod);
  if (method == nullptr || method->flags != flags || std::strcmp(method->name, name) != 0) {
    return false;
  }
  *original = method->function;
  return Store(&method->function, ours);
}

void BuiltinCalls::ExchangeSetterOfData() const {
  static PyGetSet like = {"nanwatch", nullptr, nullptr, nullptr, nullptr};
  const PyOwned ours(api_, api_.PyDescr_NewGetSet(tensor_type_, &like));
  if (!ours) return api_.PyErr_Clear();
  if (MethodIn<PyGetSet>(ours.get(), kInMethod) != &like) return;
  const PyOwned object(api_, api_.AttributeOrNull(tensor_type_, "data"));
  if (!object || object.get()->type != ours.get()->type) return;
  auto* definition = MethodIn<PyGetSet>(object.get(), kInMethod);
  const bool known = definition != nullptr && definition->set != nullptr &&
                     std::strcmp(definition->name, "data") == 0;
  if (!known) return;
  original_set_data = definition->set;
  (void)Store(&definition->set, &SetData);
}

// None of these is noexcept: a daemon thread that outlives Python is ended by forced unwinding
// through them.
PyObj* BuiltinCalls::Switch(PyObj* self, PyObj* arguments, PyObj* named) {
  PyObj* result = CallNamed(original_switch, self, arguments, named);
  calls_of_process->callbacks_.on_switch();
  return result;
}

PyObj* BuiltinCalls::Item(PyObj* self, PyObj* unused) {
  PyObj* result = original_item(self, unused);
  if (result != nullptr) calls_of_process->Read(self, result);
  return result;
}

PyObj* BuiltinCalls::Float(PyObj* self, PyObj* unused) {
  PyObj* result = original_float(self, unused);
  if (result != nullptr) calls_of_process->Read(self, result);
  return result;
}

int BuiltinCalls::SetData(PyObj* self, PyObj* value, void* closure) {
  const int failed = original_set_data(self, value, closure);
  BuiltinCalls& mine = *calls_of_process;
  const at::TensorBase* const tensor =
      failed == 0 && mine.IsTensor(self) ? mine.names_.TensorOf(self) : nullptr;
  if (tensor != nullptr) {
    mine.callbacks_.on_data(*tensor, mine.names_.SeeAgain(tensor->unsafeGetTensorImpl()));
  }
  return failed;
}

template <int kWhich>
PyObj* BuiltinCalls::AskOfTorch(PyObj* self, PyObj* arguments, PyObj* named) {
  PyObj* result = CallNamed(original_of_torch[kWhich], self, arguments, named);
  const PythonApi& api = calls_of_process->api_;
  if (result != nullptr && api.PyTuple_Size(arguments) > 0) {
    calls_of_process->Asked(api.PyTuple_GetItem(arguments, 0));
  }
  return result;
}

template <int kWhich>
PyObj* BuiltinCalls::AskOfTensor(PyObj* self, PyObj* unused) {
  PyObj* result = original_of_tensor[kWhich](self, unused);
  if (result != nullptr) calls_of_process->Asked(self);
  return result;
}

bool BuiltinCalls::IsTensor(PyObj* object) const {
  return api_.PyType_IsSubtype(object->type, tensor_type_) != 0;
}

void BuiltinCalls::Read(PyObj* tensor, PyObj* number) const {
  if (number->type != api_.float_type) return;
  const double value = api_.PyFloat_AsDouble(number);
  if (std::isfinite(value)) return;
  const at::TensorBase* read = IsTensor(tensor) ? names_.TensorOf(tensor) : nullptr;
  if (read != nullptr) callbacks_.on_number(*read, value);
}

void BuiltinCalls::Asked(PyObj* tensor) const {
  const at::TensorBase* asked = IsTensor(tensor) ? names_.TensorOf(tensor) : nullptr;
  if (asked != nullptr) callbacks_.on_asked(*asked);
}

}  // namespace nanwatch
