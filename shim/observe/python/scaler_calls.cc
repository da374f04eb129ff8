#include "shim/observe/python/scaler_calls.h"

namespace nanwatch {
namespace {

// A function of ours has no room for a pointer. There is one door a process.
ScalerCalls* the_calls = nullptr;

constexpr char kScale[] =
    "import functools\n"
    "@functools.wraps(call)\n"
    "def nanwatch_scale(self, outputs, *arguments, **named):\n"
    "    if not is_compiling() and self.is_enabled():\n"
    "        tell(outputs)\n"
    "    return call(self, outputs, *arguments, **named)\n";
constexpr char kUpdate[] =
    "def nanwatch_amp_update_scale(*arguments, **named):\n"
    "    result = call(*arguments, **named)\n"
    "    if len(arguments) > 2 and not is_compiling():\n"
    "        tell(arguments)\n"
    "    return result\n";

}  // namespace

void ScalerCalls::TryReplace() {
  static PyMethod tell_scale = {"tell", TellScale, kPyMethodOneArgument, nullptr};
  static PyMethod tell_update = {"tell", TellUpdate, kPyMethodOneArgument, nullptr};
  if (tried_ || the_calls != nullptr) return;
  const KeptError error(api_);
  PyObj* torch = api_.LoadedModule("torch");
  PyObj* scaler = api_.LoadedModule("torch.amp.grad_scaler");
  if (torch == nullptr || scaler == nullptr) return;
  tried_ = true;
  the_calls = this;
  if (callbacks_.on_updated != nullptr)
    Replace(torch, "_amp_update_scale_", {kUpdate, "nanwatch_amp_update_scale"}, &tell_update);
  const PyOwned scaler_class(api_, api_.AttributeOrNull(scaler, "GradScaler"));
  if (scaler_class && callbacks_.on_scale != nullptr) {
    Replace(scaler_class.get(), "scale", {kScale, "nanwatch_scale"}, &tell_scale);
  }
}

bool ScalerCalls::Replace(PyObj* holder, const char* name, const Ours& ours, PyMethod* tell) {
  PyObj* compiler = api_.LoadedModule("torch.compiler");
  if (compiler == nullptr) return false;
  const PyOwned original(api_, api_.AttributeOrNull(holder, name));
  const PyOwned is_compiling(api_, api_.AttributeOrNull(compiler, "is_compiling"));
  const PyOwned told(api_, api_.PyCFunction_NewEx(tell, nullptr, nullptr));
  if (!original || !is_compiling || !told) return false;
  const PyOwned made(api_, api_.Define(ours.text, ours.name,
                                       {{"call", original.get()},
                                        {"is_compiling", is_compiling.get()},
                                        {"tell", told.get()}}));
  return made && api_.PyObject_SetAttrString(holder, name, made.get()) == 0;
}

// A tensor, or some of them, of which a list or tuple is looked into.
PyObj* ScalerCalls::TellScale(PyObj*, PyObj* outputs) {
  const ScalerCalls& mine = *the_calls;
  PyObj* first = mine.api_.FirstOf(outputs);
  if (first == nullptr) first = outputs;
  if (mine.api_.PyType_IsSubtype(first->type, mine.tensor_type_) != 0) {
    const at::TensorBase* loss = mine.names_.TensorOf(first);
    if (loss != nullptr) mine.callbacks_.on_scale(*loss);
  }
  mine.api_.Py_IncRef(mine.api_.none);
  return mine.api_.none;
}

// The op's own arguments: the scale, the growth tracker, found_inf.
PyObj* ScalerCalls::TellUpdate(PyObj*, PyObj* arguments) {
  const ScalerCalls& mine = *the_calls;
  const at::TensorBase* scale = mine.names_.TensorOf(mine.api_.PyTuple_GetItem(arguments, 0));
  const at::TensorBase* found_inf = mine.names_.TensorOf(mine.api_.PyTuple_GetItem(arguments, 2));
  if (scale != nullptr && found_inf != nullptr) mine.callbacks_.on_updated(*scale, *found_inf);
  mine.api_.Py_IncRef(mine.api_.none);
  return mine.api_.none;
}

}  // namespace nanwatch
