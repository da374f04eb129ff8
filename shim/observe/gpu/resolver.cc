// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/resolver.h"

#include <cstdlib>
#include <new>
#include <vector>

#include "shim/host/monotonic_clock.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/figures/parameter_stats.h"
#include "shim/observe/finding/clean_outputs.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/gpu_listener.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/step_scope.h"

namespace nanwatch {

bool GpuResolver::Prepare() noexcept {
  resolver_ = ThreadStates::MakeForResolving();
  constexpr size_t kBytes = sizeof(OpEvent) + device::kOutputsMax * sizeof(SeenTensor);
  void* scratch = std::aligned_alloc(
      alignof(OpEvent), (kBytes + alignof(OpEvent) - 1) / alignof(OpEvent) * alignof(OpEvent));
  if (scratch == nullptr || !notes_.Prepare()) return false;
  scratch_ = new (scratch) OpEvent;
  return resolver_ != nullptr;
}

void GpuResolver::TryResolve() noexcept {
  const std::unique_lock<std::mutex> turn(resolving_, std::try_to_lock);
  if (turn.owns_lock()) ResolveReady();
}

void GpuResolver::ResolveReady() noexcept {
  ThreadState* thread = ThreadStates::Mine();
  const bool was_busy = thread != nullptr && thread->busy;
  if (thread != nullptr) thread->busy = true;
  state_.checks.Collect();
  if (state_.checks.TakeHit() && !parts_.poison.Poisoned()) parts_.listener.Raise();
  const bool may_resolve = ResolveUnannounced();
  for (QueuedEvent* head = state_.ring.Head(); may_resolve && head != nullptr;
       head = state_.ring.Head()) {
    if (!ResolveHead(head)) break;
    state_.ring.Release(head);
  }
  if (thread != nullptr) thread->busy = was_busy;
}

bool GpuResolver::ResolveHead(QueuedEvent* head) noexcept {
  // Of one that fills the queue up to its end there may be no more than kEventAlignment bytes.
  if (head->kind == EventKind::kNothing) return true;
  if (head->graph != nullptr && head->kind != EventKind::kReplay) {
    KeepForReplays(head);
    return true;
  }
  const GpuAnswer* answer = nullptr;
  bool lost = false;
  if (head->ticket != 0) {
    answer = state_.checks.Find(head->ticket, &lost);
    if (answer == nullptr && !lost && !IsStuck(*head)) return false;
    lost = answer == nullptr;
  }
  if (lost) {
    RecordLost(*head);
    if (head->kind == EventKind::kBatch) Resolve(*head, nullptr);
  } else {
    Resolve(*head, answer);
  }
  DropTensors(head);
  return true;
}

// What was found in a replay is resolved with the next.
void GpuResolver::RecordLost(const QueuedEvent& event) noexcept {
  if (event.kind == EventKind::kHanded) {
    const CheckedAs as = static_cast<const OpEvent&>(event).checked_as;
    if (AreGradients(as)) parts_.gradients.RecordUnseen();
    if (as == CheckedAs::kProbe) parts_.poison_watch.OnProbeLost();
  }
  ++resolver_->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)];
}

// A stream whose launches are answered no more must not hold up what others have answered since. (A
// GPU that is busy with one long kernel answers nothing at all.)
bool GpuResolver::IsStuck(const QueuedEvent& head) noexcept {
  constexpr uint64_t kPatienceNs = 2'000'000'000;
  // Less than SettleAtExit's, and shared by events that follow each other.
  constexpr uint64_t kPatienceAtExitNs = 150'000'000;
  const uint64_t now = MonotonicNs();
  if (stuck_at_ != head.number) {
    if (!state_.checks.AtExit() || stuck_at_ + 1 != head.number) stuck_since_ns_ = now;
    stuck_at_ = head.number;
  }
  const uint64_t patience_ns = state_.checks.AtExit() ? kPatienceAtExitNs : kPatienceNs;
  return now - stuck_since_ns_ > patience_ns && state_.checks.newest_answer() > head.ticket;
}

void GpuResolver::BeginResolving(const QueuedEvent& event) noexcept {
  resolver_->told = &event.moment;
  told_event_ = event.number;
  resolver_->depth = resolver_->inputs_used = 0;
  resolver_->pass = event.moment.place.pass;
}

// What was unread, and is in what the event has checked, was read in full now.
void GpuResolver::RecordRead(const OpEvent& event, const GpuAnswer& answer) noexcept try {
  if (event.measures || event.graph != nullptr) return;
  const bool is_clean = answer.outcome == device::Finished::Outcome::kClean;
  const bool is_bad = answer.outcome == device::Finished::Outcome::kBad;
  std::vector<OpBatches::ReadRange> ranges;
  const auto add = [&ranges](const auto& tensor) {
    ranges.push_back({tensor.storage.storage, tensor.byte_begin, tensor.byte_end});
  };
  if (event.list != nullptr && (is_clean || is_bad)) {
    for (uint32_t i = 0; i < event.outputs; ++i) {
      const bool is_finite = is_clean || FindListed(device::ListOf(*answer.result), i).kinds == 0;
      if (is_finite) add(event.list->tensors()[i]);
    }
  } else if (is_clean) {
    for (uint32_t i = 0; i < event.outputs; ++i) {
      if (event.tensors[i].seen.Plain().IsDense()) add(event.tensors[i].seen);
    }
  }
  state_.batches.RecordRead(ranges, event.ops_before);
} catch (const std::bad_alloc&) {  // they stay unread
}

void GpuResolver::Resolve(QueuedEvent& event, const GpuAnswer* answer) noexcept {
  const bool is_checked = event.kind == EventKind::kOp || event.kind == EventKind::kHanded;
  if (is_checked && answer != nullptr && state_.batches.AnyUnread()) {
    RecordRead(static_cast<const OpEvent&>(event), *answer);
  }
  ThreadState* thread = resolver_;
  BeginResolving(event);
  switch (event.kind) {
    case EventKind::kNothing:  // is released before
      break;
    case EventKind::kOp:
      ResolveOp(static_cast<OpEvent&>(event), answer);
      break;
    case EventKind::kBatch:
      ResolveBatch(static_cast<BatchEvent&>(event), answer);
      break;
    case EventKind::kHanded:
      ResolveTensors(static_cast<OpEvent&>(event), *answer);
      break;
    case EventKind::kView: {
      auto& view = static_cast<ViewEvent&>(event);
      parts_.clean_outputs.OnSkipped(thread, view.frame, view.tensor.seen.Plain());
      break;
    }
    case EventKind::kPass: {
      const auto& pass = static_cast<const PassEvent&>(event);
      parts_.passes.RecordBegin(thread, pass.pass, pass.root.Get(), pass.tells_loss);
      break;
    }
    case EventKind::kLeaf:
      ResolveLeaf(static_cast<LeafEvent&>(event));
      break;
    case EventKind::kOptimizerBegin:
      ResolveOptimizerBegin(static_cast<OptimizerEvent&>(event));
      break;
    case EventKind::kOptimizerEnd: {
      const auto& end = static_cast<const OptimizerEvent&>(event);
      parts_.gradients.EndUpdate();
      skips_update_ = false;
      parts_.steps.RecordOptimizerEnd(thread, {end.stopped, end.ops_unwatched});
      break;
    }
    case EventKind::kPlainUpdate:
      parts_.steps.RecordPlainUpdate(thread);
      break;
    case EventKind::kCollective:
      ResolveCollective(static_cast<CollectiveEvent&>(event));
      break;
    case EventKind::kSnapshot:
      parts_.parameter_stats.EmitLast(static_cast<SnapshotEvent&>(event).snapshot);
      break;
    case EventKind::kReplay:
      ResolveReplay(static_cast<ReplayEvent&>(event));
      break;
  }
  thread->told = nullptr;
}

void GpuResolver::ResolveOptimizerBegin(const OptimizerEvent& begin) noexcept {
  Gradients gradients = begin.gradients;
  gradients.skipped |= skips_update_;
  skips_update_ = false;
  parts_.gradients.Settle(resolver_, begin.range_name, &gradients);
  parts_.steps.RecordOptimizerBegin(resolver_, {begin.optimizer, begin.range_name, gradients});
}

}  // namespace nanwatch
