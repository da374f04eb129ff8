// SPDX-License-Identifier: Apache-2.0
// Who wants facts (facts.h), as lower folders see them: they hand facts over without knowing who
// takes them. The composition root connects both (observer.h).
//
//   step, unseen, figures --facts--> LateFacts    gpu/: waits for the GPU, then calls back
//   step                  --facts--> StepSink     level/: which level comes next, what checks cost
//   finding               --facts--> FindingSink  gpu/: the kernels of a finding's op
//
// None of this is called for a clean op.
#pragma once

#include <cstdint>

#include "shim/observe/events/facts.h"

namespace nanwatch {

// In a job with a GPU facts wait in one queue, in their order, until the GPU has answered. Each is
// then handled as if it happened then, by the function that a job on the CPU calls at once.
//
// Threads: any.
class LateFacts {
 public:
  // A tensor on a GPU was seen: facts are enqueued from now on. False: this process's GPUs cannot
  // be checked.
  virtual bool Begin() noexcept = 0;
  [[nodiscard]] virtual bool On() const noexcept = 0;

  virtual void Enqueue(ThreadState* thread, const PassBegan& fact) noexcept = 0;
  virtual void Enqueue(ThreadState* thread, const LeafReached& fact) noexcept = 0;
  // The event's number; 0: there was no room for it.
  virtual uint64_t Enqueue(ThreadState* thread, const UpdateBegan& fact) noexcept = 0;
  virtual void Enqueue(ThreadState* thread, const UpdateEnded& fact) noexcept = 0;
  virtual void Enqueue(ThreadState* thread, const PlainUpdate& fact) noexcept = 0;
  virtual void Enqueue(ThreadState* thread, const CollectiveTensors& fact) noexcept = 0;
  // False: some of them will not be checked.
  virtual bool Enqueue(ThreadState* thread, const TensorsToCheck& fact) noexcept = 0;
  virtual bool Enqueue(ThreadState* thread, const TensorsToMeasure& fact) noexcept = 0;
  virtual bool Enqueue(ThreadState* thread, const SnapshotTaken& fact) noexcept = 0;

  // Whether a snapshot can be measured now.
  [[nodiscard]] virtual bool MayMeasure(const ThreadState* thread) noexcept = 0;
  // The number that the next event will have.
  [[nodiscard]] virtual uint64_t NextEvent() const noexcept = 0;

  // A bad tensor that nobody is known to have written: whether it came by a collective, which is
  // then reported and known.
  virtual bool ResolveReceived(ThreadState* thread, const PlainTensor& tensor) noexcept = 0;
  // The same, whether it may have come of what was found last, as values were lost unread in this
  // step. Fills kind and value.
  virtual bool AssumeSource(const ThreadState* thread, const PlainTensor& tensor,
                            wire::Source* source, ValueRef* value) const noexcept = 0;

  // ---- waiting: only for --on-anomaly stop
  // Until this event is resolved. False: the GPU will answer later, or does not.
  virtual bool WaitForGpu(ThreadState* thread, uint64_t event) noexcept = 0;
  // Until all GPUs that were seen are set up; false: that takes too long.
  virtual bool WaitForSetUp() noexcept = 0;

 protected:
  ~LateFacts() = default;
};

// Who decides how the next step is watched. On the thread whose step it is, between two ops.
class StepSink {
 public:
  // Steps begin and end here: a request for another level is applied.
  virtual void OnBoundary(ThreadState* thread) noexcept = 0;
  // A gradient or a buffer is bad, and nobody knows yet where that came from.
  virtual void OnBadRead(ThreadState* thread) noexcept = 0;
  virtual void OnStep(ThreadState* thread, const StepEnded& step) noexcept = 0;

  // ---- steps whose checks are off, so that their cost can be measured
  // The step that runs is the last of them, and is to be followed by ReadAfter.
  [[nodiscard]] virtual bool ReadsAfterStep() const noexcept = 0;
  // There were some, and nothing was read since.
  [[nodiscard]] virtual bool IsUnread() const noexcept = 0;
  // Whether the checks were switched on again in the middle of the step that ends.
  [[nodiscard]] virtual bool TakeCutShort() noexcept = 0;
  // The step has ended but for what is read after it, which is no part of its time.
  virtual void RecordStepEnded() noexcept = 0;
  // Reads all that modules hold.
  virtual void ReadAfter(ThreadState* thread) noexcept = 0;

 protected:
  ~StepSink() = default;
};

// Who wants to know of findings. On the thread of the op, or on the one that resolves it.
class FindingSink {
 public:
  // Of an op on a GPU whose kernels are traced: its record has this head.
  virtual void RecordFinding(const Frame& frame, const wire::RecordHeader& finding) noexcept = 0;

 protected:
  ~FindingSink() = default;
};

}  // namespace nanwatch
