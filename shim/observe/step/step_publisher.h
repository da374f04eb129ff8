// SPDX-License-Identifier: Apache-2.0
// The end of each step: what is forgotten, what is published of it, and who is told.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/wire/segment.h"
#include "shim/entry/observer_interface.h"
#include "shim/observe/events/facts.h"

namespace nanwatch {

class Capsules;
class Emitter;
class FindingRecords;
class Headroom;
class InputTracking;
class LevelState;
class Poison;
class PoisonWatch;
class ProcessSegment;
class PythonBridge;
class ReadNumbers;
class ScalerState;
class StepLosses;
class StepProgress;
class StepSink;
struct StepMarks;

class StepPublisher {
 public:
  // All outlive it.
  struct Uses {
    const NanwatchEntry& entry;
    ProcessSegment& segment;
    FindingRecords& records;
    const PythonBridge& python;
    BadValues& bad_values;
    InputTracking& tracking;
    LevelState& level;
    const Poison& poison;
    PoisonWatch& poison_watch;
    StepMarks& marks;
    StepProgress& progress;
    StepLosses& losses;
    ScalerState& scaler;
    ReadNumbers& read_numbers;
    Headroom& headroom;
    Capsules& capsules;
    StepSink& sink;
  };
  explicit StepPublisher(const Uses& uses) noexcept : uses_(uses) {}

  // The gradients of the step that is open; as they are known by now.
  void SetGradients(const Gradients& gradients) noexcept;
  [[nodiscard]] Gradients gradients() noexcept;

  // A step of this optimizer has ended (0 where there is none). `skipped`: by a GradScaler.
  void Publish(ThreadState* thread, uint32_t optimizer, bool skipped) noexcept;

  // A notebook's cell begins. Nothing was trained since the one before ended, so the step that ends
  // next has no time of its own.
  void OnCell() noexcept;

 private:
  void Age() noexcept;
  [[nodiscard]] wire::Level WatchedNow() const noexcept;
  void EmitCell(ThreadState* thread, uint64_t began_ns) noexcept;
  void FillEntry(ThreadState* thread, uint32_t optimizer, bool skipped,
                 wire::StepEntry* into) noexcept;
  void TakeTelemetry(uint64_t now_ns, wire::TelemetryEntry* into) noexcept;

  const Uses uses_;
  std::atomic<uint64_t> cell_began_ns_{0};  // no step has ended in it; 0: one has
  std::mutex mutex_;                        // covers the last
  Gradients gradients_;
  uint64_t step_began_ns_ = 0;
};

}  // namespace nanwatch
