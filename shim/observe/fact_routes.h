// SPDX-License-Identifier: Apache-2.0
// Where facts of lower folders go (events/fact_sink.h): to the GPU's queue, and to those who decide
// on the level.
#pragma once

#include "shim/observe/events/fact_sink.h"

namespace nanwatch {

class Observer;

class GpuRoute final : public LateFacts {
 public:
  explicit GpuRoute(Observer& observer) noexcept : observer_(observer) {}

  bool Begin() noexcept override;
  [[nodiscard]] bool On() const noexcept override;
  void Enqueue(ThreadState* thread, const PassBegan& fact) noexcept override;
  void Enqueue(ThreadState* thread, const LeafReached& fact) noexcept override;
  uint64_t Enqueue(ThreadState* thread, const UpdateBegan& fact) noexcept override;
  void Enqueue(ThreadState* thread, const UpdateEnded& fact) noexcept override;
  void Enqueue(ThreadState* thread, const PlainUpdate& fact) noexcept override;
  void Enqueue(ThreadState* thread, const CollectiveTensors& fact) noexcept override;
  bool Enqueue(ThreadState* thread, const TensorsToCheck& fact) noexcept override;
  bool Enqueue(ThreadState* thread, const TensorsToMeasure& fact) noexcept override;
  bool Enqueue(ThreadState* thread, const SnapshotTaken& fact) noexcept override;
  [[nodiscard]] bool MayMeasure(const ThreadState* thread) noexcept override;
  [[nodiscard]] uint64_t NextEvent() const noexcept override;
  void LetCutsGo() noexcept override;
  bool ResolveReceived(ThreadState* thread, const PlainTensor& tensor) noexcept override;
  bool AssumeSource(const ThreadState* thread, const PlainTensor& tensor, wire::Source* source,
                    ValueRef* value) const noexcept override;
  bool WaitForGpu(ThreadState* thread, uint64_t event) noexcept override;
  bool WaitForSetUp() noexcept override;

 private:
  Observer& observer_;
};

class LevelRoute final : public StepSink {
 public:
  explicit LevelRoute(Observer& observer) noexcept : observer_(observer) {}

  void OnBoundary(ThreadState* thread) noexcept override;
  void OnUpdateBegins(ThreadState* thread) noexcept override;
  void OnBadGradient(ThreadState* thread) noexcept override;
  void OnStep(ThreadState* thread, const StepEnded& step) noexcept override;
  [[nodiscard]] bool ReadsAfterStep() const noexcept override;
  [[nodiscard]] bool IsUnread() const noexcept override;
  [[nodiscard]] bool TakeCutShort() noexcept override;
  void RecordStepEnded() noexcept override;
  void ReadAfter(ThreadState* thread) noexcept override;

 private:
  Observer& observer_;
};

}  // namespace nanwatch
