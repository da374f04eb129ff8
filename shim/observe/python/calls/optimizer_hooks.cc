// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/optimizer_hooks.h"

#include <cstdio>

namespace nanwatch {
namespace {

// A function of ours has no room for a pointer. There is one bridge per process.
OptimizerHooks* the_hooks = nullptr;

constexpr char kHook[] =
    "def nanwatch_step_hook(optimizer, args, kwargs):\n"
    "    if not is_compiling():\n"
    "        tell(optimizer)\n";

}  // namespace

void OptimizerHooks::TryInstall(const Callbacks& callbacks) {
  if (installed() || failed_) return;
  const KeptError error(api_);
  PyObj* module = api_.ImportedModule("torch.optim.optimizer");
  PyObj* compiler = api_.LoadedModule("torch.compiler");
  if (module == nullptr || compiler == nullptr) return;
  const PyOwned is_compiling(api_, api_.AttributeOrNull(compiler, "is_compiling"));
  if (!is_compiling) return;
  callbacks_ = callbacks;
  the_hooks = this;
  failed_ = !frames_.proven() || !Install(module, is_compiling.get());
  if (!failed_) installed_.store(true, std::memory_order_release);
}

// By torch's own functions, which are there from 2.1 on.
bool OptimizerHooks::Install(PyObj* module, PyObj* is_compiling) {
  static PyMethod begin = {"begin", Begin, kPyMethodOneArgument, nullptr};
  static PyMethod end = {"end", End, kPyMethodOneArgument, nullptr};
  const PyOwned add_first(api_, api_.AttributeOrNull(module, "register_optimizer_step_pre_hook"));
  const PyOwned add_last(api_, api_.AttributeOrNull(module, "register_optimizer_step_post_hook"));
  const PyOwned first(api_, MakeHook(is_compiling, &begin));
  const PyOwned last(api_, MakeHook(is_compiling, &end));
  if (!add_first || !add_last || !first || !last) return false;
  constexpr PyObj* kEnd = nullptr;
  const PyOwned last_handle(api_,
                            api_.PyObject_CallFunctionObjArgs(add_last.get(), last.get(), kEnd));
  if (!last_handle) return false;
  // From here on each step that begins is told, and ends at the one before.
  const PyOwned first_handle(api_,
                             api_.PyObject_CallFunctionObjArgs(add_first.get(), first.get(), kEnd));
  if (first_handle) return true;
  api_.PyErr_Clear();
  const PyOwned remove(api_, api_.AttributeOrNull(last_handle.get(), "remove"));
  if (remove) const PyOwned done(api_, api_.PyObject_CallFunctionObjArgs(remove.get(), kEnd));
  return false;
}

PyObj* OptimizerHooks::MakeHook(PyObj* is_compiling, PyMethod* told) {
  const PyOwned tell(api_, api_.PyCFunction_NewEx(told, nullptr, nullptr));
  if (!tell) return nullptr;
  return api_.Define(kHook, "nanwatch_step_hook",
                     {{"is_compiling", is_compiling}, {"tell", tell.get()}});
}

PyObj* OptimizerHooks::Begin(PyObj*, PyObj* optimizer) {
  OptimizerHooks& hooks = *the_hooks;
  const PythonApi& api = hooks.api_;
  const PyOwned type_name(api, api.AttributeOrNull(optimizer->type, "__name__"));
  const char* text = type_name ? api.Text(type_name.get()) : nullptr;
  char name[96];
  std::snprintf(name, sizeof name, "Optimizer.step#%.70s.step", text != nullptr ? text : "?");
  hooks.callbacks_.on_begin(optimizer, hooks.known_.IdentityOf(optimizer), name);
  return api.NewNone();
}

PyObj* OptimizerHooks::End(PyObj*, PyObj*) {
  const OptimizerHooks& hooks = *the_hooks;
  hooks.callbacks_.on_end();
  return hooks.api_.NewNone();
}

}  // namespace nanwatch
