// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/fact_routes.h"

#include "shim/observe/observer.h"

namespace nanwatch {

bool GpuRoute::Begin() noexcept { return observer_.gpu_events.Begin(observer_); }

bool GpuRoute::On() const noexcept { return observer_.gpu_events.On(); }

void GpuRoute::Enqueue(ThreadState* thread, const PassBegan& fact) noexcept {
  observer_.gpu_events.EnqueuePass(observer_, thread, fact.number, fact.root, fact.root_is_loss);
}

void GpuRoute::Enqueue(ThreadState* thread, const LeafReached& fact) noexcept {
  observer_.gpu_events.EnqueueLeaf(observer_, thread, fact.gradient, fact.named);
}

uint64_t GpuRoute::Enqueue(ThreadState* thread, const UpdateBegan& fact) noexcept {
  return observer_.gpu_events.EnqueueOptimizerBegin(observer_, thread, fact.optimizer,
                                                    fact.range_name, fact.gradients);
}

void GpuRoute::Enqueue(ThreadState* thread, const UpdateEnded& fact) noexcept {
  observer_.gpu_events.EnqueueOptimizerEnd(observer_, thread, fact.stopped, fact.ops_unwatched);
}

void GpuRoute::Enqueue(ThreadState* thread, const PlainUpdate&) noexcept {
  observer_.gpu_events.EnqueuePlainUpdate(observer_, thread);
}

void GpuRoute::Enqueue(ThreadState* thread, const CollectiveTensors& fact) noexcept {
  observer_.gpu_events.EnqueueCollective(observer_, thread, fact.collective, fact.tensors,
                                         fact.given_in);
}

bool GpuRoute::Enqueue(ThreadState* thread, const TensorsToCheck& fact) noexcept {
  return observer_.gpu_events.EnqueueTensors(observer_, thread, fact.as, fact.tensors);
}

bool GpuRoute::Enqueue(ThreadState* thread, const TensorsToMeasure& fact) noexcept {
  return observer_.gpu_events.EnqueueFigures(observer_, thread, fact.as, fact.tensors,
                                             fact.snapshot, fact.samples);
}

bool GpuRoute::Enqueue(ThreadState* thread, const SnapshotTaken& fact) noexcept {
  return observer_.gpu_events.EnqueueSnapshot(observer_, thread, fact.snapshot);
}

bool GpuRoute::MayMeasure(const ThreadState* thread) noexcept {
  return observer_.gpu_events.MayMeasure(observer_, thread);
}

uint64_t GpuRoute::NextEvent() const noexcept { return observer_.gpu_events.next_event(); }

void GpuRoute::LetCutsGo() noexcept { observer_.gpu_events.LetCutsGo(); }

bool GpuRoute::ResolveReceived(ThreadState* thread, const PlainTensor& tensor) noexcept {
  return observer_.gpu_events.ResolveReceived(observer_, thread, tensor);
}

bool GpuRoute::AssumeSource(const ThreadState* thread, const PlainTensor& tensor,
                            wire::Source* source, ValueRef* value) const noexcept {
  return observer_.gpu_events.AssumeSource(observer_, thread, tensor, source, value);
}

bool GpuRoute::WaitForGpu(ThreadState* thread, uint64_t event) noexcept {
  return observer_.gpu_events.WaitForGpu(observer_, thread, event);
}

bool GpuRoute::WaitForSetUp() noexcept { return observer_.gpu_events.WaitForSetUp(observer_); }

void LevelRoute::OnBoundary(ThreadState* thread) noexcept { observer_.level.Look(thread); }

void LevelRoute::OnUpdateBegins(ThreadState* thread) noexcept {
  observer_.cuts.OnUpdate(observer_, thread);
}

void LevelRoute::OnBadGradient(ThreadState* thread) noexcept {
  observer_.cuts.Resolve(observer_, thread, nullptr);
}

void LevelRoute::OnStep(ThreadState* thread, const StepEnded& step) noexcept {
  const Suspicion::Step seen{.loss = step.loss,
                             .gradient_norm = step.gradient_norm,
                             .near_limit = step.near_limit,
                             .loss_known = step.loss_known,
                             .norm_known = step.norm_known};
  // Without an optimizer's ranges nobody would ever choose again.
  const bool has_optimizer = step.clocks.optimizer_ranges != 0;
  const bool chooses = has_optimizer || observer_.level.asked() == wire::Level::kLayer;
  if (chooses && !observer_.poison.Blind()) {
    observer_.level.OnStep(
        thread,
        {.ns = step.step_ns, .watched = step.watched, .kind = step.optimizer, .seen = seen});
  }
  if (has_optimizer) {
    observer_.measuring.OnStep(thread, {.time_ns = step.time_ns,
                                        .clocks = step.clocks,
                                        .calm = step.calm,
                                        .off = step.off,
                                        .readable = step.readable,
                                        .seen = seen});
  }
  observer_.PublishLive(wire::LiveState::kWatching);
}

bool LevelRoute::ReadsAfterStep() const noexcept { return observer_.measuring.ReadsAfterStep(); }

bool LevelRoute::IsUnread() const noexcept { return observer_.measuring.IsUnread(); }

bool LevelRoute::TakeCutShort() noexcept { return observer_.measuring.TakeCutShort(); }

void LevelRoute::RecordStepEnded() noexcept { observer_.measuring.RecordStepEnded(); }

void LevelRoute::ReadAfter(ThreadState* thread) noexcept { observer_.measuring.ReadAfter(thread); }

}  // namespace nanwatch
