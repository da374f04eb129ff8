#include "shim/observe/python/scaler_calls.h"

namespace nanwatch {
namespace {

constexpr char kName[] = "_amp_update_scale_";

// A function of ours has no room for a pointer. There is one door a process.
ScalerCalls* the_calls = nullptr;

constexpr char kCall[] =
    "def nanwatch_amp_update_scale(*arguments, **named):\n"
    "    result = call(*arguments, **named)\n"
    "    if len(arguments) > 2 and not is_compiling():\n"
    "        tell(arguments)\n"
    "    return result\n";

}  // namespace

void ScalerCalls::TryReplace() {
  static PyMethod tell = {"tell", Tell, kPyMethodOneArgument, nullptr};
  if (replaced_ || on_update_ == nullptr) return;
  const KeptError error(api_);
  PyObj* torch = api_.LoadedModule("torch");
  PyObj* compiler = api_.LoadedModule("torch.compiler");
  if (torch == nullptr || compiler == nullptr) return;
  const PyOwned original(api_, api_.AttributeOrNull(torch, kName));
  const PyOwned is_compiling(api_, api_.AttributeOrNull(compiler, "is_compiling"));
  const PyOwned told(api_, api_.PyCFunction_NewEx(&tell, nullptr, nullptr));
  if (!original || !is_compiling || !told) return;
  the_calls = this;
  const PyOwned ours(api_, api_.Define(kCall, "nanwatch_amp_update_scale",
                                       {{"call", original.get()},
                                        {"is_compiling", is_compiling.get()},
                                        {"tell", told.get()}}));
  replaced_ = ours && api_.PyObject_SetAttrString(torch, kName, ours.get()) == 0;
}

// The op's own arguments: the scale, the growth tracker, found_inf.
PyObj* ScalerCalls::Tell(PyObj*, PyObj* arguments) {
  const ScalerCalls& mine = *the_calls;
  const at::TensorBase* scale = mine.names_.TensorOf(mine.api_.PyTuple_GetItem(arguments, 0));
  const at::TensorBase* found_inf = mine.names_.TensorOf(mine.api_.PyTuple_GetItem(arguments, 2));
  if (scale != nullptr && found_inf != nullptr) mine.on_update_(*scale, *found_inf);
  mine.api_.Py_IncRef(mine.api_.none);
  return mine.api_.none;
}

}  // namespace nanwatch
