// SPDX-License-Identifier: Apache-2.0
// Ops that left nothing bad while something bad is alive: what they wrote over is good again, and
// what they read that was bad has ended in them.
//
// Threads: any. Called only while inputs are tracked.
#pragma once

#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class BadValues;
class Emitter;
class FindingRecords;
class KnownBad;
class Poison;
class ProcessSegment;
class ScalarReads;

class CleanOutputs {
 public:
  // All outlive it.
  struct Uses {
    ProcessSegment& segment;
    FindingRecords& records;
    BadValues& bad_values;
    KnownBad& known_bad;
    const Poison& poison;
    ScalarReads& scalar_reads;
  };
  explicit CleanOutputs(const Uses& uses) noexcept : uses_(uses) {}

  // An op ended and everything it wrote is clean.
  void OnClean(ThreadState* thread, Frame& frame) noexcept;
  // An op returned memory of another's (a view), or wrote values nobody needs to check.
  void OnSkipped(ThreadState* thread, const Frame& frame, const PlainTensor& tensor) noexcept;

 private:
  void RecordKill(ThreadState* thread, const Frame& frame, Emitter& emitter) const noexcept;

  const Uses uses_;
};

}  // namespace nanwatch
