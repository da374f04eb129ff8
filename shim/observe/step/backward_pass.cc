// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/backward_pass.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "shim/check/scan.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/pass_leaves.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/finding/loss_roots.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

// The parameter whose gradient the node that is running accumulates.
const c10::TensorImpl* LeafOfCurrentNode() {
  const auto node = torch::autograd::get_current_node();
  const auto* accumulate = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get());
  return accumulate != nullptr ? accumulate->variable.unsafeGetTensorImpl() : nullptr;
}

}  // namespace

// Often at first, then ever more rarely, for each place whose value spoiled the root, or else the
// first leaf: what has been excused many times hides nothing that begins elsewhere.
bool BackwardPasses::IsWorthWriting() noexcept {
  const uint32_t site = record_.root_site != 0 ? record_.root_site
                        : record_.n_bad != 0   ? record_.bad[0].site
                                               : 0;
  auto* const end = bad_passes_ + bad_sites_;
  auto* passes =
      std::find_if(bad_passes_, end, [site](const BadPasses& entry) { return entry.site == site; });
  if (passes == end) {
    if (bad_sites_ == kBadSitesMax) {
      --passes;  // the last one stands for the rest
    } else {
      *passes = {.site = site};
      ++bad_sites_;
    }
  }
  return IsEarlyOrRare(++passes->count);
}

uint64_t BackwardPasses::OnBegin(ThreadState* thread, int task,
                                 const SequenceEntry* root) noexcept {
  const std::lock_guard<std::mutex> lock(begin_mutex_);
  if (task == begun_task_) return begun_number_;
  begun_task_ = task;
  begun_number_ = DrawNumber();
  ReleaseInputs();
  // Whether its gradients are accumulated or handed back (autograd.grad): an update may follow.
  uses_.marks.plain_update_due.store(true, std::memory_order_relaxed);
  uses_.leaves.Clear();
  const bool root_is_loss = !uses_.losses.IsScaled();
  if (uses_.late.On()) {
    uses_.late.Enqueue(thread, PassBegan{begun_number_, root, root_is_loss});
  } else {
    RecordBegin(thread, begun_number_, root, root_is_loss);
  }
  return begun_number_;
}

void BackwardPasses::RecordBegin(ThreadState* thread, uint64_t number, const SequenceEntry* root,
                                 bool root_is_loss) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  CloseHeld(thread);
  const bool clean_root = root != nullptr && root->value.ticket == 0;
  if (clean_root && !uses_.late.On() && !uses_.poison.Poisoned()) uses_.poison.LeaveAlone();
  if (uses_.late.On() || thread->optimizer_depth == 0) uses_.poison_watch.Settle();
  Emitter* emitter = uses_.segment.Ensure();
  if (emitter == nullptr) return;
  record_ = wire::PassRecord{};
  record_.pass = number;
  scaled_ = !root_is_loss;
  bad_root_ = {};
  reached_leaf_ = counted_ = false;
  open_ = true;
  // Under the number of a compiled node an op inside the region may be known.
  if (const ValueRef expected = std::exchange(expected_root_, ValueRef()); SetRoot(expected)) {
    return EmitBadRoot(thread, expected);
  }
  if (root == nullptr) {
    record_.flags = wire::PassRecord::kRootUnknown;
    return;
  }
  const ValueRef root_value = root->value;
  record_.root_value = root_value.ticket;
  record_.root_site = root_value.ticket != 0 ? root->site : 0;
  record_.root_op = uses_.segment.NameOf(*root->op);
  record_.root_layer =
      root->layer != nullptr && *root->layer->path != '\0' ? emitter->Intern(root->layer->path) : 0;
  uses_.roots.Record(record_.root_op, record_.root_layer);
  if (root_value.ticket == 0) {
    if (root_is_loss) RecordLossOf(thread, *root);
    return;
  }
  if (root_is_loss) uses_.losses.Record(std::nan(""));
  record_.flags |= wire::PassRecord::kRootBad;
  EmitBadRoot(thread, root_value);
}

ValueRef BackwardPasses::BadRoot() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bad_root_;
}

// A clean one, if it is the last scalar that an op of this thread has left.
void BackwardPasses::RecordLossOf(const ThreadState* thread, const SequenceEntry& root) noexcept {
  const ScalarSeen& scalar = thread->last_scalar;
  double loss = 0;
  if (root.sequence.load(std::memory_order_relaxed) == scalar.sequence_plus_one &&
      ReadNumber(TensorView{&scalar.bits, scalar.type, 0, nullptr, nullptr, 1}, &loss)) {
    uses_.losses.Record(loss);
  }
}

// False: nothing is known of the value, or it is none.
bool BackwardPasses::SetRoot(ValueRef root) noexcept {
  RecentValues::Kept made;
  if (root.ticket == 0 || !uses_.recent.Look(root, &made)) return false;
  record_.flags = wire::PassRecord::kRootBad;
  record_.root_value = root.ticket;
  record_.root_site = made.record.site;
  record_.root_op = made.op;
  record_.root_layer = made.layer;
  return true;
}

void BackwardPasses::EmitBadRoot(ThreadState* thread, ValueRef root, uint32_t flags) noexcept {
  bad_root_ = root;
  uses_.poison.OnBadLoss();
  Emit(thread, flags);
  uses_.segment.emitter()->RecordReach(wire::Reach::kLoss, root.ticket, record_.header.ticket, 0,
                                       record_.header.clocks);
  uses_.records.WriteAncestors(root);
}

void BackwardPasses::ExpectRoot(ValueRef loss) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  expected_root_ = loss;
}

void BackwardPasses::OnLeaf(ThreadState* thread, const at::RecordFunction& range) noexcept try {
  const auto inputs = range.inputs();
  PlainTensor plain;
  wire::Unchecked reason;
  const bool later = uses_.late.On();
  const bool seen = !inputs.empty() && inputs[0].isTensor() && !uses_.poison.Ignores() &&
                    (later ? DescribeTensor(inputs[0].toTensor(), &plain, &reason)
                           : ReadTensor(inputs[0].toTensor(), &plain, &reason)) == Readable::kYes;
  const PlainTensor* gradient = seen && (later || HasNonFinite(plain.view)) ? &plain : nullptr;
  const bool by_hand = uses_.progress.range() == 0;
  const c10::TensorImpl* leaf = gradient != nullptr || by_hand ? LeafOfCurrentNode() : nullptr;
  if (by_hand && leaf != nullptr) uses_.leaves.Add(*leaf);
  const NamedTensor* named = leaf != nullptr ? uses_.names.FindByImpl(leaf) : nullptr;
  if (later) return uses_.late.Enqueue(thread, LeafReached{gradient, named});
  RecordLeaf(thread, gradient, named);
} catch (...) {
}

void BackwardPasses::RecordLeaf(ThreadState* thread, const PlainTensor* gradient,
                                const NamedTensor* named) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!reached_leaf_) {
    reached_leaf_ = true;
    uses_.progress.OnPassReachedLeaf();
  }
  ++record_.leaves;
  if (gradient == nullptr || uses_.poison.Poisoned() || !HasNonFinite(gradient->view)) return;
  Emitter* emitter = uses_.segment.Ensure();
  if (emitter == nullptr) return;
  wire::Source source{};
  ValueRef value;
  source.kind = static_cast<uint8_t>(wire::SourceKind::kUnknown);
  uses_.known_bad.SourceOf(*gradient, &source, &value);
  source.kinds = NonFiniteKinds(gradient->view);
  const uint32_t name = named != nullptr ? emitter->Intern(named->name) : 0;
  if (record_.n_bad < wire::kSourcesMax) {
    record_.bad[record_.n_bad] = source;
    record_.bad_names[record_.n_bad++] = name;
    uses_.records.WriteAncestors(value);
  }
  if (++record_.leaves_bad != 1) return;
  Emit(thread, wire::PassRecord::kLeafBad);
  emitter->RecordReach(wire::Reach::kGradient, value.ticket, record_.header.ticket, name,
                       record_.header.clocks);
}

void BackwardPasses::Emit(ThreadState* thread, uint32_t flags) noexcept {
  Emitter* emitter = uses_.segment.emitter();
  if (emitter == nullptr) return;
  if (!counted_) {
    worth_writing_ = IsWorthWriting();
    counted_ = true;
  }
  record_.flags |= flags;
  if (scaled_) record_.flags |= wire::PassRecord::kScaled;
  record_.header =
      uses_.records.MakeHeader(thread, *emitter, wire::RecordKind::kPass, sizeof record_);
  if (worth_writing_) emitter->Emit(record_.header);
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

void BackwardPasses::OnBadGradients(ThreadState* thread, uint32_t leaves, uint32_t leaves_bad,
                                    const BadLeaves& bad) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  Emitter* emitter = uses_.segment.Ensure();
  if (emitter == nullptr) return;
  CloseHeld(thread);
  record_ = wire::PassRecord{};
  record_.pass = DrawNumber();
  scaled_ = uses_.losses.IsScaled();
  record_.flags = wire::PassRecord::kRootUnknown;
  record_.leaves = leaves;
  record_.leaves_bad = leaves_bad;
  counted_ = false;
  for (uint32_t i = 0; i < bad.count; ++i) {
    record_.bad[i] = bad.sources[i];
    record_.bad_names[i] = bad.names[i] != nullptr ? emitter->Intern(bad.names[i]->name) : 0;
    uses_.records.WriteAncestors(bad.values[i]);
  }
  record_.n_bad = static_cast<uint8_t>(bad.count);
  Emit(thread, wire::PassRecord::kLeafBad | wire::PassRecord::kEnded);
  emitter->RecordReach(wire::Reach::kGradient, bad.values[0].ticket, record_.header.ticket,
                       record_.bad_names[0], record_.header.clocks);
}

void BackwardPasses::OnBadLoss(ThreadState* thread, ValueRef loss) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (uses_.segment.Ensure() == nullptr) return;
  record_ = wire::PassRecord{};
  record_.pass = DrawNumber();
  scaled_ = uses_.losses.IsScaled();
  counted_ = false;
  if (SetRoot(loss)) EmitBadRoot(thread, loss, wire::PassRecord::kEnded);
}

void BackwardPasses::Close(ThreadState* thread) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  CloseHeld(thread);
}

void BackwardPasses::CloseHeld(ThreadState* thread) noexcept {
  if (!open_) return;
  open_ = false;
  if (uses_.poison.Poisoned()) return;
  if ((record_.flags & wire::PassRecord::kRootBad) == 0 && record_.leaves_bad == 0) return;
  Emit(thread,
       wire::PassRecord::kEnded | (record_.leaves_bad != 0 ? wire::PassRecord::kLeafBad : 0u));
}

void BackwardPasses::HoldInputs() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (holds_inputs_ || uses_.poison.Ignores()) return;
  holds_inputs_ = true;
  uses_.tracking.Hold();
}

void BackwardPasses::ReleaseInputs() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ReleaseInputsHeld();
}

void BackwardPasses::ReleaseInputsHeld() noexcept {
  if (!holds_inputs_) return;
  holds_inputs_ = false;
  uses_.tracking.Release();
  if (uses_.bad_values.transient() == 0) uses_.tracking.Disarm();
}

}  // namespace nanwatch
