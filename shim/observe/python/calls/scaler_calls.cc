// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/scaler_calls.h"

namespace nanwatch {
namespace {

// A function of ours has no room for a pointer. There is one bridge per process.
ScalerCalls* scaler_calls_of_process = nullptr;

constexpr char kScale[] =
    "import functools\n"
    "@functools.wraps(call)\n"
    "def nanwatch_scale(self, outputs, *arguments, **named):\n"
    "    if not is_compiling() and self.is_enabled():\n"
    "        tell(outputs)\n"
    "    return call(self, outputs, *arguments, **named)\n"
    // What torch.compile follows instead.
    "nanwatch_scale._torchdynamo_inline = call\n";
constexpr char kUpdate[] =
    "def nanwatch_amp_update_scale(*arguments, **named):\n"
    "    result = call(*arguments, **named)\n"
    "    if len(arguments) > 2 and not is_compiling():\n"
    "        tell(arguments)\n"
    "    return result\n"
    "nanwatch_amp_update_scale._torchdynamo_inline = call\n";

}  // namespace

void ScalerCalls::TryReplace() {
  static PyMethod tell_update = {"tell", OnUpdate, kPyMethodOneArgument, nullptr};
  if (tried_ || scaler_calls_of_process != nullptr) return;
  const KeptError error(api_);
  PyObj* torch = api_.LoadedModule("torch");
  PyObj* scaler = api_.LoadedModule("torch.amp.grad_scaler");
  if (torch == nullptr || scaler == nullptr) return;
  tried_ = true;
  scaler_calls_of_process = this;
  if (callbacks_.on_updated != nullptr)
    (void)api_.ReplaceFunction(torch, "_amp_update_scale_", {kUpdate, "nanwatch_amp_update_scale"},
                               &tell_update);
  ReplaceScale(scaler, "GradScaler");
}

void ScalerCalls::TryReplaceSharded() {
  if (!tried_ || tried_sharded_) return;
  const KeptError error(api_);
  PyObj* module = api_.ImportedModule("torch.distributed.fsdp.sharded_grad_scaler");
  if (module == nullptr) return;
  tried_sharded_ = true;
  ReplaceScale(module, "ShardedGradScaler");
}

void ScalerCalls::ReplaceScale(PyObj* module, const char* class_name) {
  static PyMethod tell = {"tell", OnScale, kPyMethodOneArgument, nullptr};
  const PyOwned scaler_class(api_, api_.AttributeOrNull(module, class_name));
  if (!scaler_class || callbacks_.on_scale == nullptr) return;
  (void)api_.ReplaceFunction(scaler_class.get(), "scale", {kScale, "nanwatch_scale"}, &tell);
}

// A tensor, or some of them.
PyObj* ScalerCalls::OnScale(PyObj*, PyObj* outputs) {
  const ScalerCalls& mine = *scaler_calls_of_process;
  const bool is_tensor = mine.api_.PyType_IsSubtype(outputs->type, mine.tensor_type_) != 0;
  mine.callbacks_.on_scale(is_tensor ? mine.names_.TensorOf(outputs) : nullptr);
  return mine.api_.NewNone();
}

// The op's own arguments: the scale, the growth tracker, found_inf.
PyObj* ScalerCalls::OnUpdate(PyObj*, PyObj* arguments) {
  const ScalerCalls& mine = *scaler_calls_of_process;
  const at::TensorBase* scale = mine.names_.TensorOf(mine.api_.PyTuple_GetItem(arguments, 0));
  const at::TensorBase* found_inf = mine.names_.TensorOf(mine.api_.PyTuple_GetItem(arguments, 2));
  if (scale != nullptr && found_inf != nullptr) mine.callbacks_.on_updated(*scale, *found_inf);
  return mine.api_.NewNone();
}

}  // namespace nanwatch
