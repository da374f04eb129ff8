// SPDX-License-Identifier: Apache-2.0
// Calls of built-in functions of torch's that say something no op callback does:
//   torch.autograd._enable_record_function    ops run that no callback sees
//   Tensor.item, Tensor.__float__             Python reads a number
//   isnan, isinf, isfinite                    Python asks whether a number is finite
//   (of torch and of Tensor)
//   Tensor.data = other                       a tensor has other memory from now on
//
// Ours stand behind the same Python objects: the C function that a PyMethodDef or a PyGetSetDef names is exchanged.
// So all references to them are covered, whenever they were taken, and neither a signature nor what
// torch.compile knows of them changes. The object's layout is proven on objects of our own first.
#pragma once

#include <ATen/core/TensorBase.h>

#include "shim/observe/python/api/python_api.h"
#include "shim/observe/python/names/python_names.h"

namespace nanwatch {

class BuiltinCalls {
 public:
  // On the thread of the call, with the GIL, after the call. Each may be null, and must not throw.
  struct Callbacks {
    // Record functions may be on or off now for this thread.
    void (*on_switch)() = nullptr;
    // A number was read of this tensor, and it is not finite.
    void (*on_number)(const at::TensorBase& tensor, double number) = nullptr;
    // This tensor was asked whether it is finite.
    void (*on_asked)(const at::TensorBase& tensor) = nullptr;
    // This tensor has been given the memory of another one. `named`: what it is known as; may be
    // null.
    void (*on_data)(const at::TensorBase& tensor, const NamedTensor* named) = nullptr;
  };

  BuiltinCalls(const PythonApi& api, PythonNames& names, PyObj* const& tensor_type,
               const Callbacks& callbacks) noexcept
      : api_(api), names_(names), tensor_type_(tensor_type), callbacks_(callbacks) {}
  BuiltinCalls(const BuiltinCalls&) = delete;
  BuiltinCalls& operator=(const BuiltinCalls&) = delete;

  // GIL held, torch imported: once. What cannot be exchanged stays as it is.
  void TryExchange();

 private:
  using Function = PyObj* (*)(PyObj* self, PyObj* arguments);
  using NamedFunction = PyObj* (*)(PyObj* self, PyObj* arguments, PyObj* named);
  // One of `kAsking`, of torch and of Tensor.
  template <int kWhich>
  static PyObj* AskOfTorch(PyObj* self, PyObj* arguments, PyObj* named);
  template <int kWhich>
  static PyObj* AskOfTensor(PyObj* self, PyObj* unused);
  static PyObj* Switch(PyObj* self, PyObj* arguments, PyObj* named);
  static PyObj* Item(PyObj* self, PyObj* unused);
  static PyObj* Float(PyObj* self, PyObj* unused);
  static int SetData(PyObj* self, PyObj* value, void* closure);

  template <int kWhich>
  void ExchangeAsking(PyObj* functions);
  // Puts `ours` in the place of the function behind `holder`'s `name`, which has these flags and is
  // an object like `like`. False: it stays.
  bool Exchange(PyObj* holder, const char* name, PyObj* like, int flags, Function ours,
                Function* original) const;
  void ExchangeSetterOfData() const;
  void Read(PyObj* tensor, PyObj* number) const;
  void Asked(PyObj* tensor) const;
  [[nodiscard]] bool IsTensor(PyObj* object) const;

  const PythonApi& api_;
  PythonNames& names_;
  PyObj* const& tensor_type_;
  const Callbacks callbacks_;
  bool tried_ = false;         // GIL held, as of the next
  PyObj* function_ = nullptr;  // built-ins of ours, to compare with
  PyObj* method_ = nullptr;
};

}  // namespace nanwatch
