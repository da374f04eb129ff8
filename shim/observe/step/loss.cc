#include "shim/observe/step/loss.h"

#include <torch/csrc/autograd/function.h>

#include <cmath>

#include "shim/check/scan.h"
#include "shim/observe/findings.h"
#include "shim/observe/observer.h"
#include "shim/observe/sources.h"
#include "shim/observe/tensor_stats.h"

namespace nanwatch::loss {
namespace {

// A single number that a pass could begin at.
bool Describe(const at::TensorBase& tensor, PlainTensor* plain) {
  wire::Unchecked reason;
  return tensor.requires_grad() && DescribeTensor(tensor, plain, &reason) == Readable::kYes &&
         plain->view.numel == 1;
}

// False: it is no number.
bool Tell(const Here& here, const PlainTensor& plain, const Layer* layer) {
  Observer& observer = *here.observer;
  const bool canary = observer.level.watched() == wire::Level::kCanary;
  if (plain.gpu >= 0) {
    BusyScope busy(here.thread);
    GpuTensors on_gpu(observer, here.thread, /*counts=*/canary);
    on_gpu.Add(plain, wire::Target::kNone, nullptr);
    using HandedAs = Timeline::HandedAs;
    (void)observer.timeline.NoteHanded(
        observer, here.thread, canary ? HandedAs::kLoss : HandedAs::kLossNumber, on_gpu.list());
    return true;
  }
  double number = 0;
  if (!ReadNumber(plain.view, &number)) return false;
  observer.steps.NoteLoss(number);
  if (canary && !std::isfinite(number)) {
    BusyScope busy(here.thread);
    TellBad(observer, here.thread, plain, layer);
  }
  return true;
}

}  // namespace

void OnRootResult(const at::TensorBase* const* tensors, size_t count) noexcept {
  Here here;
  if (!FindHere(&here)) return;
  for (size_t i = 0; i < count; ++i) {
    PlainTensor plain;
    if (!Describe(*tensors[i], &plain)) continue;
    // A GPU is asked once, by the ops where they are watched.
    if (plain.gpu >= 0 && here.observer->level.watched() != wire::Level::kCanary) return;
    if (!Tell(here, plain, CurrentLayer())) continue;
    here.thread->told_loss = tensors[i]->grad_fn().get();
    return;
  }
}

void OnScale(const at::TensorBase& loss) noexcept {
  Here here;
  PlainTensor plain;
  if (!FindHere(&here) || here.observer->level.watched() == wire::Level::kIdle ||
      !Describe(loss, &plain)) {
    return;
  }
  here.observer->steps.OnLossScaled();
  // The model has returned it.
  if (here.observer->level.watched() == wire::Level::kCanary &&
      here.thread->told_loss == loss.grad_fn().get()) {
    return;
  }
  Tell(here, plain, /*layer=*/nullptr);
}

void OnBackward(const at::TensorBase* root) noexcept {
  Here here;
  if (!FindHere(&here) || here.observer->level.watched() != wire::Level::kCanary) return;
  // A pass inside a node belongs to that of the node.
  if (torch::autograd::get_current_graph_task_id() != -1) return;
  const void* told = std::exchange(here.thread->told_loss, nullptr);
  PlainTensor plain;
  if (here.observer->steps.TakeLossScaled() || root == nullptr || !Describe(*root, &plain) ||
      (told != nullptr && told == root->grad_fn().get())) {
    return;
  }
  Tell(here, plain, /*layer=*/nullptr);
}

void TellBad(Observer& observer, ThreadState* thread, const PlainTensor& loss,
             const Layer* layer) noexcept {
  wire::Source known{};
  ValueRef value;
  if (SourceOf(observer, loss, &known, &value)) return;
  const UnseenWriter writer = UnseenAt(layer != nullptr ? kModuleCall : kBackwardCall, layer,
                                       wire::Phase::kForward, NonFiniteKinds(loss.view), {});
  value = OnUnseenWrite(observer, thread, loss, writer);
  if (value.ticket == 0) return;
  observer.passes.OnBadLoss(observer, thread, value);
  observer.steps.NoteBadLoss(value);
}

}  // namespace nanwatch::loss
