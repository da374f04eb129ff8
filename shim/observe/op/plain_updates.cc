// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/plain_updates.h"

#include <ATen/core/ivalue.h>

#include "shim/observe/events/pass_leaves.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/torch/grad_fn.h"

namespace nanwatch {

void PlainUpdates::OnData(ThreadState* thread, const at::TensorBase& tensor) noexcept {
  const bool is_due =
      thread->optimizer_depth == 0 && thread->nodes_open == 0 && steps_.AwaitsFirstKindOfUpdate();
  if (is_due && IsTrained(tensor)) steps_.OnPlainUpdate(thread);
}

void PlainUpdates::OnOp(ThreadState* thread, const at::RecordFunction& op) {
  const auto& outputs = op.outputs();
  if (outputs.empty() || !outputs.back().isTensor()) return;
  const at::TensorBase& tensor = outputs.back().toTensor();
  if (!tensor.defined()) return;
  // A forward pass writes buffers and activations in place, too, between two passes that
  // accumulate. And who makes a model fills its parameters in place, maybe after another's pass.
  bool is_parameter = IsTrained(tensor);
  if (!tensor.requires_grad()) {
    const NamedTensor* named = names_.FindByImpl(tensor.unsafeGetTensorImpl());
    const c10::StorageImpl* storage =
        tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()
                             : nullptr;
    if (named == nullptr && storage != nullptr) named = names_.FindByStorage(storage);
    is_parameter =
        named != nullptr ? named->kind == NamedTensorKind::kParameter : leaves_.Has(storage);
  }
  if (!is_parameter) return;
  BusyScope busy(thread);
  steps_.OnPlainUpdate(thread);
}

}  // namespace nanwatch
