// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/exit_call.h"

namespace nanwatch {
namespace {

// A function of ours has no room for a pointer. There is one bridge per process.
ExitCall* exit_call_of_process = nullptr;

}  // namespace

void ExitCall::RegisterSoon() noexcept {
  if (on_exit_ != nullptr) api_.CallSoon(&asked_, Pending, this);
}

int ExitCall::Pending(void* self) {
  static_cast<ExitCall*>(self)->Register();
  return 0;
}

void ExitCall::Register() {
  static PyMethod tell = {"nanwatch_exit_call", CallOnExit, kPyMethodNoArguments, nullptr};
  const KeptError error(api_);
  PyObj* module = api_.LoadedModule("atexit");
  if (module == nullptr || exit_call_of_process != nullptr) return;
  const PyOwned add(api_, api_.AttributeOrNull(module, "register"));
  const PyOwned function(api_, api_.PyCFunction_NewEx(&tell, nullptr, nullptr));
  if (!add || !function) return;
  exit_call_of_process = this;
  constexpr PyObj* kEnd = nullptr;
  const PyOwned done(api_, api_.PyObject_CallFunctionObjArgs(add.get(), function.get(), kEnd));
  if (!done) api_.PyErr_Clear();
}

PyObj* ExitCall::CallOnExit(PyObj*, PyObj*) {
  const ExitCall& mine = *exit_call_of_process;
  PyObj* sys = mine.api_.LoadedModule("sys");
  const PyOwned last(mine.api_,
                     sys != nullptr ? mine.api_.AttributeOrNull(sys, "last_value") : nullptr);
  Ending ending = Ending::kNormal;
  if (last) {
    PyObj* builtins = mine.api_.LoadedModule("builtins");
    const PyOwned interrupt(
        mine.api_,
        builtins != nullptr ? mine.api_.AttributeOrNull(builtins, "KeyboardInterrupt") : nullptr);
    const bool interrupted = static_cast<const void*>(last.get()->type) == interrupt.get();
    ending = interrupted ? Ending::kInterrupted : Ending::kFailed;
  }
  mine.on_exit_(ending);
  return mine.api_.NewNone();
}

}  // namespace nanwatch
