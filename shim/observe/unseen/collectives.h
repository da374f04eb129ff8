// SPDX-License-Identifier: Apache-2.0
// The ranges of collectives: what this rank gave in and what came back. The process group announces
// each as a range that carries the tensors.
#pragma once

#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class CollectiveRecords;
class CollectiveResults;
class GpuTensors;
class InputTracking;
class KnownBad;
class LateFacts;
class LevelState;
class Poison;
class StepClock;

// "gloo:all_reduce", "nccl:broadcast", ...
bool IsCollective(const char* range_name) noexcept;

// What lies on a GPU is not read here (gpu/gpu_collective_results.h). `value`: a tensor or a list.
void AddOnGpu(const LateFacts& late, const c10::IValue& value, GpuTensors* tensors);

// Threads: any.
class Collectives {
 public:
  // All outlive it.
  struct Uses {
    CollectiveResults& results;
    CollectiveRecords& records;
    KnownBad& known_bad;
    const Poison& poison;
    const LevelState& level;
    const InputTracking& tracking;
    StepClock& clock;
    LateFacts& late;
  };
  explicit Collectives(const Uses& uses) noexcept : uses_(uses) {}

  // What must be known when the range ends; null when there is nothing to check.
  std::unique_ptr<at::ObserverContext> Begin(ThreadState* thread,
                                             const at::RecordFunction& range) noexcept;
  void End(ThreadState* thread, at::ObserverContext* context) noexcept;

 private:
  struct Context;
  void RecordGiven(const at::TensorBase& tensor, Context* context);

  const Uses uses_;
  // Ranks know a collective by its number, so a forked child goes on where its parent was.
  static inline std::atomic<uint64_t> begun_{0};
};

}  // namespace nanwatch
