// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/exchanged_data.h"

#include "shim/check/scan.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/grad_fn.h"
#include "shim/observe/torch/torch_tensor.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch {

void ExchangedData::OnData(ThreadState* thread, const at::TensorBase& tensor,
                           const NamedTensor* named) noexcept {
  OnChange("torch.Tensor.data", thread, tensor, named);
}

void ExchangedData::OnChange(const char* op, ThreadState* thread, const at::TensorBase& tensor,
                             const NamedTensor* named) noexcept {
  const bool is_buffer = named != nullptr && named->kind == NamedTensorKind::kBuffer;
  // Programs that do this do it to all parameters in each step.
  const bool matters = uses_.poison.Poisoned() || uses_.known_bad.Any();
  if (!matters) return;
  // Without a name it is what a program trains by itself. Without a gradient it may be a weight that
  // is loaded: the module that holds it is read, by names, when it is called.
  const bool has_gradient = tensor.unsafeGetTensorImpl()->grad().defined();
  if (named == nullptr && !(IsTrained(tensor) && has_gradient)) return;
  PlainTensor plain{};
  wire::Unchecked reason{};
  if (DescribeTensor(tensor, &plain, &reason) != Readable::kYes) return;
  if (named != nullptr) uses_.poison.Move(*named, plain);
  // What lies on a GPU cannot be looked at here: who reads the parameter tells of it.
  if (plain.gpu >= 0) return;
  if (uses_.poison.Poisoned()) {
    // It is bad as before, in other memory (`w.data = w.data - rate * w.grad`).
    if (named == nullptr && HasNonFinite(plain.view)) uses_.poison.Mark(nullptr, plain);
    return;
  }
  wire::Source source{};
  ValueRef value{};
  if (!uses_.known_bad.SourceOf(plain, &source, &value) || !HasNonFinite(plain.view)) return;
  UnobservedWriter writer{};
  writer.op = op;
  writer.layer = named != nullptr ? named->layer : nullptr;
  writer.phase = LocationOf(thread).phase;
  writer.finding_class = wire::FindingClass::kPropagate;
  writer.named = named;
  writer.target = is_buffer ? wire::Target::kBuffer : wire::Target::kParameter;
  writer.Add(source, value);
  (void)uses_.writes.Record(thread, plain, writer);
}

}  // namespace nanwatch
