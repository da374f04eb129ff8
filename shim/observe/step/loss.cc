// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/loss.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>
#include <utility>

#include "shim/check/scan.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/observer.h"
#include "shim/observe/torch/grad_fn.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/compiled_writer.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch::loss {
namespace {

// A single number that a pass could begin at.
bool Describe(const at::TensorBase& tensor, PlainTensor* plain) {
  wire::Unchecked reason;
  return tensor.requires_grad() && DescribeTensor(tensor, plain, &reason) == Readable::kYes &&
         plain->view.numel == 1;
}

// No other node of the thread ever has the same; 0: none.
uint64_t NumberOf(const torch::autograd::Node* node) {
  return node != nullptr && node->sequence_nr() != UINT64_MAX ? node->sequence_nr() + 1 : 0;
}

// Whether what is launched now comes behind what made it. A pass does: it runs where the forward
// ran, whichever stream is current where it is begun.
bool IsOnCurrentStream(const torch::autograd::Node* node, int gpu) {
  if (gpu < 0) return true;
  if (node == nullptr || node->num_inputs() == 0) return false;
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  return c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device) ==
         node->input_metadata(0).stream();
}

// Ops do not tell the loss: the calls of Python do, but of a GPU nothing is asked while parameters
// are bad.
bool IsReportedByCalls(const Observer& observer) {
  const wire::Level watched = observer.level.watched();
  return watched == wire::Level::kCanary || (observer.Blind() && watched != wire::Level::kIdle);
}

// False: it is no number.
bool Report(const Here& here, const PlainTensor& plain, const Layer* layer) {
  Observer& observer = *here.observer;
  const bool canary = observer.level.watched() == wire::Level::kCanary;
  if (plain.gpu >= 0) {
    if (observer.Blind()) return true;
    BusyScope busy(here.thread);
    GpuTensors on_gpu(observer, here.thread, /*counts=*/canary);
    on_gpu.Add(plain, wire::Target::kNone, nullptr);
    using CheckedAs = GpuEventQueue::CheckedAs;
    (void)observer.gpu_events.EnqueueTensors(
        observer, here.thread, canary ? CheckedAs::kLoss : CheckedAs::kLossNumber, on_gpu.list());
    return true;
  }
  double number = 0;
  if (!ReadNumber(plain.view, &number)) return false;
  observer.steps.RecordLoss(number);
  if (canary && !std::isfinite(number)) {
    BusyScope busy(here.thread);
    ReportBad(observer, here.thread, plain, layer);
  }
  return true;
}

// Where ops are watched they tell the loss, but of a compiled function there is none to tell it.
void ReportLossOfRegion(const Here& here, const at::TensorBase* root) {
  Observer& observer = *here.observer;
  PlainTensor plain;
  double number = 0;
  if (root == nullptr || observer.level.watched() == wire::Level::kIdle ||
      torch::autograd::get_current_graph_task_id() != -1 || !Describe(*root, &plain) ||
      plain.gpu >= 0) {
    return;
  }
  torch::autograd::Node* node = GradFnOf(*root->unsafeGetTensorImpl());
  if (node == nullptr || !compiled_regions::IsBackwardNode(node->name().c_str()) ||
      !ReadNumber(plain.view, &number)) {
    return;
  }
  if (!observer.steps.LossIsScaled()) observer.steps.RecordLoss(number);
  if (std::isfinite(number) || observer.Poisoned()) return;
  BusyScope busy(here.thread);
  observer.passes.ExpectRoot(compiled_regions::OnBadRoot(observer, here.thread, plain));
}

}  // namespace

void OnRootResult(const at::TensorBase* const* tensors, size_t count) noexcept try {
  Here here;
  // In a pass, a part of a model runs once more.
  if (!FindHere(&here) || torch::autograd::get_current_graph_task_id() != -1) return;
  canary::OnResults(*here.observer, here.thread, tensors, count);
  for (size_t i = 0; i < count; ++i) {
    PlainTensor plain;
    if (!Describe(*tensors[i], &plain)) continue;
    // A GPU is asked once, by the ops where they are watched.
    if (plain.gpu >= 0 && !IsReportedByCalls(*here.observer)) return;
    if (!Report(here, plain, CurrentLayer())) continue;
    here.thread->told_loss = NumberOf(GradFnOf(*tensors[i]->unsafeGetTensorImpl()));
    return;
  }
} catch (...) {
}

void OnScale(const at::TensorBase* loss) noexcept try {
  Here here;
  PlainTensor plain;
  if (!FindHere(&here) || here.observer->level.watched() == wire::Level::kIdle) return;
  here.observer->steps.OnLossScaled();
  if (loss == nullptr || !Describe(*loss, &plain)) return;
  const uint64_t number = NumberOf(GradFnOf(*loss->unsafeGetTensorImpl()));
  const bool told = number != 0 && number == here.thread->told_loss;
  if (told && IsReportedByCalls(*here.observer)) return;
  Report(here, plain, /*layer=*/nullptr);
} catch (...) {
}

void OnBackward(const at::TensorBase* root) noexcept try {
  Here here;
  if (!FindHere(&here)) return;
  here.observer->level.RecordIfHidden();
  if (!IsReportedByCalls(*here.observer)) return ReportLossOfRegion(here, root);
  // A pass inside a node belongs to that of the node.
  if (torch::autograd::get_current_graph_task_id() != -1) return;
  const uint64_t told = std::exchange(here.thread->told_loss, 0);
  PlainTensor plain;
  if (root == nullptr || here.observer->steps.LossIsScaled() || !Describe(*root, &plain)) return;
  torch::autograd::Node* node = GradFnOf(*root->unsafeGetTensorImpl());
  if ((told != 0 && told == NumberOf(node)) || !IsOnCurrentStream(node, plain.gpu)) return;
  Report(here, plain, /*layer=*/nullptr);
} catch (...) {
}

void ReportBad(Observer& observer, ThreadState* thread, const PlainTensor& loss,
               const Layer* layer) noexcept {
  wire::Source known{};
  ValueRef value;
  if (SourceOf(observer, loss, &known, &value)) {
    // Python has read its number before, or it is what the model returned.
    if (value.ticket == observer.steps.BadLoss().ticket) return;
  } else {
    const ValueRef before = observer.steps.BadLoss();
    const UnobservedWriter writer = UnseenAt(
        layer != nullptr ? kModuleCall : kBackwardCall, layer, wire::Phase::kForward,
        NonFiniteKinds(loss.view), before.ticket != 0 ? before : observer.steps.BadResult());
    value = OnUnobservedWrite(observer, thread, loss, writer);
  }
  if (value.ticket == 0) return;
  observer.passes.OnBadLoss(observer, thread, value);
  observer.steps.RecordBadLoss(value);
}

}  // namespace nanwatch::loss
