// SPDX-License-Identifier: Apache-2.0
// Passes, leaves and updates are enqueued. They wait for no check of their own.
#include <cstdio>

#include "shim/observe/figures/parameter_stats.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_graphs.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

void GpuEventQueue::Enqueue(ThreadState* thread, const PassBegan& fact) noexcept {
  LaunchBatches();
  if (fact.root_is_loss) EnqueueLossOf(thread, fact.root);
  auto* event = state_.ring.Reserve<PassEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kPass;
  event->moment = MomentOf(thread);
  event->pass = fact.number;
  event->root = SequenceRef(fact.root);
  event->tells_loss = fact.root_is_loss;
  event->graph = CapturedGraph(thread, /*begins=*/true);
  state_.ring.Publish(event);
  state_.checks.Ask(thread);
}

void GpuEventQueue::Enqueue(ThreadState* thread, const LeafReached& fact) noexcept {
  auto* event = state_.ring.Reserve<LeafEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kLeaf;
  event->moment = MomentOf(thread);
  event->named = fact.named;
  event->has_gradient = fact.gradient != nullptr && fact.gradient->view.ndim <= wire::kShapeDimsMax;
  if (event->has_gradient) {
    InputSeen seen{};
    seen.Copy(*fact.gradient);
    KeepRead(seen, &event->gradient);
    TorchWeakStorageOps().drop(seen.storage.handle);
  }
  event->graph = CapturedGraph(thread, /*begins=*/false);
  state_.ring.Publish(event);
}

uint64_t GpuEventQueue::Enqueue(ThreadState* thread, const UpdateBegan& fact) noexcept {
  LaunchBatches();
  auto* event = state_.ring.Reserve<OptimizerEvent>();
  if (event == nullptr) return 0;
  event->kind = EventKind::kOptimizerBegin;
  event->moment = MomentOf(thread);
  event->optimizer = fact.optimizer;
  std::snprintf(event->range_name, sizeof event->range_name, "%s", fact.range_name);
  event->gradients = fact.gradients;
  event->graph = CapturedGraph(thread, /*begins=*/true);
  const uint64_t number = event->number;
  state_.ring.Publish(event);
  return number;
}

void GpuEventQueue::Enqueue(ThreadState* thread, const UpdateEnded& fact) noexcept {
  LaunchBatches();
  state_.batches.OnStep();
  CheckUnread(thread);
  ReleaseAfterUpdate();
  auto* event = state_.ring.Reserve<OptimizerEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kOptimizerEnd;
  event->moment = MomentOf(thread);
  event->stopped = fact.stopped;
  event->ops_unwatched = fact.ops_unwatched;
  event->graph = CapturedGraph(thread, /*begins=*/true);
  state_.ring.Publish(event);
  state_.checks.AddStep(thread);
  state_.checks.Ask(thread);
  Settle();
}

void GpuEventQueue::Enqueue(ThreadState* thread, const PlainUpdate&) noexcept {
  LaunchBatches();
  state_.batches.OnStep();
  CheckUnread(thread);
  ReleaseAfterUpdate();
  auto* event = state_.ring.Reserve<PassEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kPlainUpdate;
  event->moment = MomentOf(thread);
  event->graph = CapturedGraph(thread, /*begins=*/true);
  state_.ring.Publish(event);
  state_.checks.AddStep(thread);
  state_.checks.Ask(thread);
  Settle();
}

void GpuEventQueue::OnResults(ThreadState* thread,
                              std::span<const at::TensorBase* const> results) noexcept {
  if (!On()) return;
  state_.batches.ReleaseWithGil();
  if (parts_.parameter_stats.MeasuresLayers()) MeasureResults(thread, results);
  // The model has returned: what it computed is read while it is there.
  if (ScopeDepth() == 1) LaunchBatches();
}

}  // namespace nanwatch
