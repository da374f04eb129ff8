// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/backward_pass.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cmath>
#include <utility>

#include "shim/check/scan.h"
#include "shim/observe/finding/finding_record.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/observer.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

// Passes that are written in full; later ones at powers of two.
constexpr uint64_t kFullPasses = 16;

// The parameter whose gradient the node that is running accumulates.
const c10::TensorImpl* LeafOfCurrentNode() {
  const auto node = torch::autograd::get_current_node();
  const auto* accumulate = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get());
  return accumulate != nullptr ? accumulate->variable.unsafeGetTensorImpl() : nullptr;
}

}  // namespace

bool BackwardPasses::ShouldWrite() noexcept {
  return bad_passes_ <= kFullPasses || (bad_passes_ & (bad_passes_ - 1)) == 0;
}

uint64_t BackwardPasses::OnBegin(Observer& observer, ThreadState* thread, int task,
                                 const SequenceEntry* root) noexcept {
  const std::lock_guard<std::mutex> lock(begin_mutex_);
  if (task == begun_task_) return begun_number_;
  begun_task_ = task;
  begun_number_ = DrawNumber();
  ReleaseInputs(observer);
  // Whether its gradients are accumulated or handed back (autograd.grad): an update may follow.
  observer.plain_update_due.store(true, std::memory_order_relaxed);
  const bool tells_loss = !observer.steps.LossIsScaled();
  if (observer.gpu_events.On()) {
    observer.gpu_events.EnqueuePass(observer, thread, begun_number_, root, tells_loss);
  } else {
    RecordBegin(observer, thread, begun_number_, root, tells_loss);
  }
  return begun_number_;
}

void BackwardPasses::RecordBegin(Observer& observer, ThreadState* thread, uint64_t number,
                                 const SequenceEntry* root, bool tells_loss) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  CloseHeld(observer, thread);
  if (observer.gpu_events.On() || thread->optimizer_depth == 0) observer.SettlePoison();
  Emitter* emitter = observer.segment.Ensure();
  if (emitter == nullptr) return;
  record_ = wire::PassRecord{};
  record_.pass = number;
  reached_leaf_ = written_ = false;
  open_ = true;
  // Under the number of a compiled node an op inside the region may be known.
  if (const ValueRef expected = std::exchange(expected_root_, ValueRef());
      SetRoot(observer, expected)) {
    return EmitBadRoot(observer, thread, expected);
  }
  if (root == nullptr) {
    record_.flags = wire::PassRecord::kRootUnknown;
    return;
  }
  const ValueRef root_value = root->value;
  record_.root_value = root_value.ticket;
  record_.root_site = root_value.ticket != 0 ? root->site : 0;
  record_.root_op = observer.segment.NameOf(*root->op);
  record_.root_layer =
      root->layer != nullptr && *root->layer->path != '\0' ? emitter->Intern(root->layer->path) : 0;
  RecordRoot(record_.root_op, record_.root_layer);
  if (root_value.ticket == 0) {
    const ScalarSeen& scalar = thread->last_scalar;
    if (tells_loss && root->sequence.load(std::memory_order_relaxed) == scalar.sequence_plus_one) {
      double loss = 0;
      if (ReadNumber(TensorView{&scalar.bits, scalar.type, 0, nullptr, nullptr, 1}, &loss)) {
        observer.steps.RecordLoss(loss);
      }
    }
    return;
  }
  if (tells_loss) observer.steps.RecordLoss(std::nan(""));
  record_.flags |= wire::PassRecord::kRootBad;
  EmitBadRoot(observer, thread, root_value);
}

// False: nothing is known of the value, or it is none.
bool BackwardPasses::SetRoot(Observer& observer, ValueRef root) noexcept {
  RecentValues::Kept made;
  if (root.ticket == 0 || !observer.recent_values.Look(root, &made)) return false;
  record_.flags = wire::PassRecord::kRootBad;
  record_.root_value = root.ticket;
  record_.root_site = made.record.site;
  record_.root_op = made.op;
  record_.root_layer = made.layer;
  return true;
}

void BackwardPasses::EmitBadRoot(Observer& observer, ThreadState* thread, ValueRef root,
                                 uint32_t flags) noexcept {
  Emit(observer, thread, flags);
  observer.segment.emitter()->RecordReach(wire::Reach::kLoss, root.ticket, record_.header.ticket, 0,
                                          record_.header.clocks);
  observer.records.WriteAncestors(root);
}

void BackwardPasses::ExpectRoot(ValueRef loss) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  expected_root_ = loss;
}

void BackwardPasses::OnLeaf(Observer& observer, ThreadState* thread,
                            const at::RecordFunction& range) noexcept try {
  const auto inputs = range.inputs();
  PlainTensor plain;
  wire::Unchecked reason;
  const bool later = observer.gpu_events.On();
  const bool seen = !inputs.empty() && inputs[0].isTensor() && !observer.Ignores() &&
                    (later ? DescribeTensor(inputs[0].toTensor(), &plain, &reason)
                           : ReadTensor(inputs[0].toTensor(), &plain, &reason)) == Readable::kYes;
  const PlainTensor* gradient = seen && (later || HasNonFinite(plain.view)) ? &plain : nullptr;
  const c10::TensorImpl* leaf = gradient != nullptr ? LeafOfCurrentNode() : nullptr;
  const NamedTensor* named = leaf != nullptr ? observer.python->names().FindByImpl(leaf) : nullptr;
  if (later) return observer.gpu_events.EnqueueLeaf(observer, thread, gradient, named);
  RecordLeaf(observer, thread, gradient, named);
} catch (...) {
}

void BackwardPasses::RecordLeaf(Observer& observer, ThreadState* thread,
                                const PlainTensor* gradient, const NamedTensor* named) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!reached_leaf_) {
    reached_leaf_ = true;
    observer.steps.OnPassReachedLeaf();
  }
  ++record_.leaves;
  if (gradient == nullptr || observer.Poisoned() || !HasNonFinite(gradient->view)) return;
  Emitter* emitter = observer.segment.Ensure();
  if (emitter == nullptr) return;
  wire::Source source{};
  ValueRef value;
  source.kind = static_cast<uint8_t>(wire::SourceKind::kUnknown);
  SourceOf(observer, *gradient, &source, &value);
  source.kinds = NonFiniteKinds(gradient->view);
  const uint32_t name = named != nullptr ? emitter->Intern(named->name) : 0;
  if (record_.n_bad < wire::kSourcesMax) {
    record_.bad[record_.n_bad] = source;
    record_.bad_names[record_.n_bad++] = name;
    observer.records.WriteAncestors(value);
  }
  if (++record_.leaves_bad != 1) return;
  Emit(observer, thread, wire::PassRecord::kLeafBad);
  emitter->RecordReach(wire::Reach::kGradient, value.ticket, record_.header.ticket, name,
                       record_.header.clocks);
}

void BackwardPasses::Emit(Observer& observer, ThreadState* thread, uint32_t flags) noexcept {
  Emitter* emitter = observer.segment.emitter();
  if (emitter == nullptr) return;
  if (!written_) {
    ++bad_passes_;
    written_ = true;
  }
  record_.flags |= flags;
  record_.header =
      observer.records.MakeHeader(thread, *emitter, wire::RecordKind::kPass, sizeof record_);
  if (ShouldWrite()) emitter->Emit(record_.header);
}

void BackwardPasses::BadLeaves::Add(ValueRef value, uint8_t kinds,
                                    const NamedTensor* named) noexcept {
  if (count == wire::kSourcesMax) return;
  wire::Source& source = sources[count];
  source.kind = static_cast<uint8_t>(value.ticket != 0 ? wire::SourceKind::kValue
                                                       : wire::SourceKind::kUnknown);
  source.value = value.ticket;
  source.kinds = kinds;
  source.input = 255;
  values[count] = value;
  names[count++] = named;
}

void BackwardPasses::OnBadGradients(Observer& observer, ThreadState* thread, uint32_t leaves,
                                    uint32_t leaves_bad, const BadLeaves& bad) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  Emitter* emitter = observer.segment.Ensure();
  if (emitter == nullptr) return;
  record_ = wire::PassRecord{};
  record_.pass = DrawNumber();
  record_.flags = wire::PassRecord::kRootUnknown;
  record_.leaves = leaves;
  record_.leaves_bad = leaves_bad;
  written_ = false;
  for (uint32_t i = 0; i < bad.count; ++i) {
    record_.bad[i] = bad.sources[i];
    record_.bad_names[i] = bad.names[i] != nullptr ? emitter->Intern(bad.names[i]->name) : 0;
    observer.records.WriteAncestors(bad.values[i]);
  }
  record_.n_bad = static_cast<uint8_t>(bad.count);
  Emit(observer, thread, wire::PassRecord::kLeafBad | wire::PassRecord::kEnded);
  emitter->RecordReach(wire::Reach::kGradient, bad.values[0].ticket, record_.header.ticket,
                       record_.bad_names[0], record_.header.clocks);
}

void BackwardPasses::OnBadLoss(Observer& observer, ThreadState* thread, ValueRef loss) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (observer.segment.Ensure() == nullptr) return;
  record_ = wire::PassRecord{};
  record_.pass = DrawNumber();
  written_ = false;
  if (SetRoot(observer, loss)) EmitBadRoot(observer, thread, loss, wire::PassRecord::kEnded);
}

void BackwardPasses::Close(Observer& observer, ThreadState* thread) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  CloseHeld(observer, thread);
}

void BackwardPasses::CloseHeld(Observer& observer, ThreadState* thread) noexcept {
  if (!open_) return;
  open_ = false;
  if (observer.Poisoned()) return;
  if ((record_.flags & wire::PassRecord::kRootBad) == 0 && record_.leaves_bad == 0) return;
  Emit(observer, thread,
       wire::PassRecord::kEnded | (record_.leaves_bad != 0 ? wire::PassRecord::kLeafBad : 0u));
}

void BackwardPasses::HoldInputs(Observer& observer) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (holds_inputs_ || observer.Ignores()) return;
  holds_inputs_ = true;
  observer.input_tracking.Hold();
}

void BackwardPasses::ReleaseInputs(Observer& observer) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ReleaseInputsHeld(observer);
}

void BackwardPasses::ReleaseInputsHeld(Observer& observer) noexcept {
  if (!holds_inputs_) return;
  holds_inputs_ = false;
  observer.input_tracking.Release();
  if (observer.bad_values.transient() == 0) observer.input_tracking.Disarm();
}

bool BackwardPasses::WasRoot(uint32_t op, uint32_t layer) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return WasRootHeld(op, layer);
}

bool BackwardPasses::WasRootHeld(uint32_t op, uint32_t layer) const noexcept {
  for (int i = 0; i < roots_count_; ++i) {
    if (roots_[i].op == op && roots_[i].layer == layer) return true;
  }
  return false;
}

void BackwardPasses::RecordRoot(uint32_t op, uint32_t layer) noexcept {
  if (WasRootHeld(op, layer)) return;
  if (roots_count_ < kRootsMax) roots_[roots_count_++] = {op, layer};
}

}  // namespace nanwatch
