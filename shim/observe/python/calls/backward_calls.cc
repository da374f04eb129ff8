// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/backward_calls.h"

namespace nanwatch {
namespace {

constexpr char kEngine[] = "_execution_engine";
constexpr char kRun[] = "run_backward";

// A function of ours has no room for a pointer. There is one bridge per process.
BackwardCalls* backward_calls_of_process = nullptr;

constexpr char kDerived[] =
    "own = type(engine)\n"
    "engine = type(own.__name__, (own,), {'__slots__': (), '__module__': own.__module__,\n"
    "                                     '__doc__': own.__doc__, 'run_backward': run})()\n";

}  // namespace

void BackwardCalls::TryReplace() {
  // By way of another type, as Python itself has it: the flags say how it is called.
  static PyMethod run = {
      kRun, reinterpret_cast<PyObj* (*)(PyObj*, PyObj*)>(reinterpret_cast<void (*)()>(&Run)),
      kPyMethodArguments | kPyMethodNamed, nullptr};
  if (original_ != nullptr || on_call_ == nullptr) return;
  const KeptError error(api_);
  PyObj* autograd = api_.LoadedModule("torch.autograd");
  if (autograd == nullptr) return;
  const PyOwned variable(api_, api_.AttributeOrNull(autograd, "Variable"));
  if (!variable) return;
  const PyOwned engine(api_, api_.AttributeOrNull(variable.get(), kEngine));
  if (!engine) return;
  PyOwned original(api_, api_.AttributeOrNull(engine.get(), kRun));
  const PyOwned ours(api_, api_.PyCFunction_NewEx(&run, nullptr, nullptr));
  if (!original || !ours) return;
  const PyOwned derived(
      api_, api_.Define(kDerived, "engine", {{"engine", engine.get()}, {"run", ours.get()}}));
  if (!derived) return;
  backward_calls_of_process = this;
  original_ = original.release();
  if (api_.PyObject_SetAttrString(variable.get(), kEngine, derived.get()) != 0) api_.PyErr_Clear();
}

// Not noexcept: a daemon thread that outlives Python is ended by forced unwinding through it.
PyObj* BackwardCalls::Run(PyObj*, PyObj* arguments, PyObj* named) {
  const BackwardCalls& mine = *backward_calls_of_process;
  const at::TensorBase* roots[kRootsMax];
  const size_t count = mine.ReadRoots(arguments, named, roots);
  mine.on_call_(roots, count);
  return mine.api_.PyObject_Call(mine.original_, arguments, named);
}

// (tensors or edges of the graph, their gradients, keep_graph, create_graph, inputs, ...,
// accumulate_grad=...). Leaves no error pending.
size_t BackwardCalls::ReadRoots(PyObj* arguments, PyObj* named,
                                const at::TensorBase* (&roots)[kRootsMax]) const {
  if (named == nullptr || api_.PyTuple_Size(arguments) < 1) return 0;
  if (api_.PyDict_GetItemString(named, "accumulate_grad") != api_.true_object) return 0;
  PyObj* values = api_.PyTuple_GetItem(arguments, 0);
  size_t count = 0;
  for (; count < kRootsMax; ++count) {
    PyObj* value = api_.ItemOf(values, count);
    if (value == nullptr) break;
    const bool is_tensor = api_.PyType_IsSubtype(value->type, tensor_type_) != 0;
    roots[count] = is_tensor ? names_.TensorOf(value) : nullptr;
  }
  return count;
}

}  // namespace nanwatch
