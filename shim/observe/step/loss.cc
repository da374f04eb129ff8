// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/loss.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "shim/check/scan.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/step/canary_reads.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/torch/grad_fn.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/compiled_writer.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch {
namespace {

// A single number that a pass could begin at.
bool Describe(const at::TensorBase& tensor, PlainTensor* plain) {
  wire::Unchecked reason;
  return tensor.requires_grad() && DescribeTensor(tensor, plain, &reason) == Readable::kYes &&
         plain->view.numel == 1;
}

// Not a GPU's, which only the GPU can tell.
bool IsBadNumber(const at::TensorBase& tensor, PlainTensor* plain) {
  double number = 0;
  return Describe(tensor, plain) && plain->gpu < 0 && ReadNumber(plain->view, &number) &&
         !std::isfinite(number);
}

const at::TensorBase* ChooseRoot(const at::TensorBase* const* roots, size_t count) {
  if (count < 2) return count == 0 ? nullptr : roots[0];
  const auto* const bad = std::find_if(roots, roots + count, [](const at::TensorBase* root) {
    PlainTensor plain;
    return root != nullptr && IsBadNumber(*root, &plain);
  });
  return bad != roots + count ? *bad : roots[0];
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

}  // namespace

// Ops do not tell the loss: the calls of Python do, but of a GPU nothing is asked while parameters
// are bad. (Where nobody but the ops tells the steps of a program, they are watched on, and tell
// only a finite one.)
bool LossReads::IsReportedByCalls() const noexcept {
  const wire::Level watched = uses_.level.watched();
  const bool dead = uses_.poison.Blind() || (uses_.poison.Poisoned() && !uses_.late.On());
  return watched == wire::Level::kCanary || (dead && watched != wire::Level::kIdle);
}

// False: it is no number.
bool LossReads::Report(ThreadState* thread, const PlainTensor& plain, const Layer* layer) {
  const bool canary = uses_.level.watched() == wire::Level::kCanary;
  if (plain.gpu >= 0) {
    if (uses_.poison.Blind()) return true;
    BusyScope busy(thread);
    GpuTensors on_gpu(uses_.late, thread, /*counts=*/canary);
    on_gpu.Add(plain, wire::Target::kNone, nullptr);
    const CheckedAs as = canary ? CheckedAs::kLoss : CheckedAs::kLossNumber;
    (void)uses_.late.Enqueue(thread, TensorsToCheck{as, on_gpu.list()});
    return true;
  }
  double number = 0;
  if (!ReadNumber(plain.view, &number)) return false;
  uses_.losses.Record(number);
  if (std::isfinite(number)) uses_.poison_watch.OnFiniteLoss();
  if (canary && !std::isfinite(number)) {
    BusyScope busy(thread);
    ReportBad(thread, plain, layer);
  }
  return true;
}

// Where ops are watched they tell the loss, but of a compiled function there is none to tell it.
void LossReads::ReportLossOfRegion(ThreadState* thread, const at::TensorBase* root) {
  PlainTensor plain;
  double number = 0;
  if (root == nullptr || uses_.level.watched() == wire::Level::kIdle ||
      torch::autograd::get_current_graph_task_id() != -1 || !Describe(*root, &plain) ||
      plain.gpu >= 0) {
    return;
  }
  torch::autograd::Node* node = GradFnOf(*root->unsafeGetTensorImpl());
  if (node == nullptr || !compiled_regions::IsBackwardNode(node->name().c_str()) ||
      !ReadNumber(plain.view, &number)) {
    return;
  }
  if (!uses_.losses.IsScaled()) uses_.losses.Record(number);
  if (std::isfinite(number) || uses_.poison.Poisoned()) return;
  BusyScope busy(thread);
  uses_.passes.ExpectRoot(uses_.compiled_writes.OnBadRoot(thread, plain));
}

void LossReads::OnRootResult(ThreadState* thread, const at::TensorBase* const* tensors,
                             size_t count) noexcept try {
  // In a pass, a part of a model runs once more.
  if (torch::autograd::get_current_graph_task_id() != -1) return;
  uses_.reads.OnResults(thread, tensors, count);
  for (size_t i = 0; i < count; ++i) {
    PlainTensor plain;
    if (!Describe(*tensors[i], &plain)) continue;
    // A GPU is asked once, by the ops where they are watched.
    if (plain.gpu >= 0 && !IsReportedByCalls()) return;
    if (!Report(thread, plain, CurrentLayer())) continue;
    thread->told_loss = NumberOf(GradFnOf(*tensors[i]->unsafeGetTensorImpl()));
    return;
  }
} catch (...) {
}

void LossReads::OnScale(ThreadState* thread, const at::TensorBase* loss) noexcept try {
  PlainTensor plain;
  if (uses_.level.watched() == wire::Level::kIdle) return;
  uses_.losses.SetScaled(true);
  if (loss == nullptr || !Describe(*loss, &plain)) return;
  const uint64_t number = NumberOf(GradFnOf(*loss->unsafeGetTensorImpl()));
  const bool told = number != 0 && number == thread->told_loss;
  if (told && IsReportedByCalls()) return;
  Report(thread, plain, /*layer=*/nullptr);
} catch (...) {
}

// Of several roots the pass begins at the newest, and what is wrong with another one would be seen
// in its gradients alone.
void LossReads::ExpectRoot(const at::TensorBase& root) {
  PlainTensor plain;
  wire::Source known{};
  ValueRef value;
  if (uses_.late.On() || uses_.level.watched() == wire::Level::kIdle || uses_.poison.Poisoned() ||
      torch::autograd::get_current_graph_task_id() != -1 || !IsBadNumber(root, &plain) ||
      !uses_.known_bad.SourceOf(plain, &known, &value)) {
    return;
  }
  if (!uses_.losses.IsScaled()) uses_.losses.Record(std::nan(""));
  uses_.passes.ExpectRoot(value);
}

void LossReads::OnBackward(ThreadState* thread, const at::TensorBase* const* roots,
                           size_t count) noexcept try {
  const at::TensorBase* root = ChooseRoot(roots, count);
  if (!IsReportedByCalls()) {
    if (count > 1 && root != nullptr) ExpectRoot(*root);
    return ReportLossOfRegion(thread, root);
  }
  // A pass inside a node belongs to that of the node.
  if (torch::autograd::get_current_graph_task_id() != -1) return;
  const uint64_t told = std::exchange(thread->told_loss, 0);
  PlainTensor plain;
  if (root == nullptr || uses_.losses.IsScaled() || !Describe(*root, &plain)) return;
  torch::autograd::Node* node = GradFnOf(*root->unsafeGetTensorImpl());
  if ((told != 0 && told == NumberOf(node)) || !IsOnCurrentStream(node, plain.gpu)) return;
  Report(thread, plain, /*layer=*/nullptr);
} catch (...) {
}

void LossReads::ReportBad(ThreadState* thread, const PlainTensor& loss,
                          const Layer* layer) noexcept {
  wire::Source known{};
  ValueRef value;
  if (uses_.known_bad.SourceOf(loss, &known, &value)) {
    // Python has read its number before, or it is what the model returned.
    if (value.ticket == uses_.losses.Bad().ticket) return;
  } else {
    const ValueRef before = uses_.losses.Bad();
    const UnobservedWriter writer =
        UnseenAt(layer != nullptr ? kModuleCall : kBackwardCall, layer, wire::Phase::kForward,
                 NonFiniteKinds(loss.view), before.ticket != 0 ? before : uses_.losses.BadResult());
    value = uses_.writes.Record(thread, loss, writer);
  }
  if (value.ticket == 0) return;
  uses_.passes.OnBadLoss(thread, value);
  uses_.losses.RecordBad(value);
}

}  // namespace nanwatch
