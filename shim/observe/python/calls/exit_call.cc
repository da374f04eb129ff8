// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/exit_call.h"

#include <cstddef>

#include "shim/observe/python/api/error_text.h"

namespace nanwatch {
namespace {

// A function of ours has no room for a pointer. There is one bridge per process.
ExitCall* exit_call_of_process = nullptr;
ExitCall* with_os_exit = nullptr;

}  // namespace

void ExitCall::RegisterSoon() noexcept {
  if (on_exit_ != nullptr) api_.CallSoon(&asked_, Pending, this);
}

void ExitCall::ReplaceOsExitSoon() noexcept {
  if (before_os_exit_ != nullptr) api_.CallSoon(&asked_to_replace_, PendingReplace, this);
}

int ExitCall::Pending(void* self) {
  static_cast<ExitCall*>(self)->Register();
  return 0;
}

int ExitCall::PendingReplace(void* self) {
  static_cast<ExitCall*>(self)->ReplaceOsExit();
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

void ExitCall::ReplaceOsExit() {
  static PyMethod end = {
      "_exit",
      reinterpret_cast<PyObj* (*)(PyObj*, PyObj*)>(reinterpret_cast<void (*)()>(CallOsExit)),
      kPyMethodArguments | kPyMethodNamed, nullptr};
  const KeptError error(api_);
  PyObj* module = api_.LoadedModule("os");
  if (module == nullptr || with_os_exit != nullptr) return;
  PyOwned original(api_, api_.AttributeOrNull(module, "_exit"));
  const PyOwned ours(api_, api_.PyCFunction_NewEx(&end, nullptr, nullptr));
  if (!original || !ours) return;
  os_exit_ = original.release();
  with_os_exit = this;
  if (api_.PyObject_SetAttrString(module, "_exit", ours.get()) != 0) api_.PyErr_Clear();
}

PyObj* ExitCall::CallOsExit(PyObj*, PyObj* arguments, PyObj* named) {
  const ExitCall& mine = *with_os_exit;
  mine.before_os_exit_();
  return mine.api_.PyObject_Call(mine.os_exit_, arguments, named);
}

ExitCall::Ending ExitCall::EndingBy(PyObj* exception) const {
  PyObj* builtins = api_.LoadedModule("builtins");
  if (builtins == nullptr) return Ending::kFailed;
  const PyOwned interrupt(api_, api_.AttributeOrNull(builtins, "KeyboardInterrupt"));
  if (static_cast<const void*>(exception->type) == interrupt.get()) return Ending::kInterrupted;
  // Python has made a text of it already, to print it.
  const PyOwned str(api_, api_.AttributeOrNull(builtins, "str"));
  if (!str) return Ending::kFailed;
  constexpr PyObj* kEnd = nullptr;
  const PyOwned text(api_, api_.PyObject_CallFunctionObjArgs(str.get(), exception, kEnd));
  ptrdiff_t length = 0;
  const char* characters = text ? api_.PyUnicode_AsUTF8AndSize(text.get(), &length) : nullptr;
  if (characters == nullptr) {
    api_.PyErr_Clear();
    return Ending::kFailed;
  }
  return SpeaksOfNonFinite({characters, static_cast<size_t>(length)}) ? Ending::kFailedByBadValue
                                                                      : Ending::kFailed;
}

PyObj* ExitCall::CallOnExit(PyObj*, PyObj*) {
  const ExitCall& mine = *exit_call_of_process;
  PyObj* sys = mine.api_.LoadedModule("sys");
  const PyOwned last(mine.api_,
                     sys != nullptr ? mine.api_.AttributeOrNull(sys, "last_value") : nullptr);
  mine.on_exit_(last ? mine.EndingBy(last.get()) : Ending::kNormal);
  return mine.api_.NewNone();
}

}  // namespace nanwatch
