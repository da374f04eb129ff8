// SPDX-License-Identifier: Apache-2.0
// From a bad value to its record: the slow path, entered only when something is not finite.
//
//   outputs that are new -> sources -> class -> record -> what follows of it
#pragma once

#include <cstdint>

#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class FindingRecords;
class Capsules;
class FindingSink;
class KnownBad;
class OpJudge;
class OutOfSight;
class PassLeaves;
class Poison;
class ProcessSegment;
class PythonBridge;
class RecentValues;
class SharedFiles;
class Trail;
struct Finding;
struct StepMarks;

// Threads: any.
class Findings {
 public:
  // All outlive it.
  struct Uses {
    ProcessSegment& segment;
    FindingRecords& records;
    PythonBridge& python;
    RecentValues& recent;
    KnownBad& known_bad;
    Poison& poison;
    const StepMarks& marks;
    OpJudge& judge;
    SharedFiles& shared_files;
    OutOfSight& out_of_sight;
    Trail& trail;
    Capsules& capsules;
    FindingSink& sink;
    PassLeaves& leaves;
  };
  explicit Findings(const Uses& uses) noexcept : uses_(uses) {}

  // An op's outputs or written arguments are bad. `frame` is the op's own, already popped.
  void OnBadOutputs(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                    int count) noexcept;

 private:
  [[nodiscard]] int TakeChanged(const ThreadState* thread, const Frame& frame,
                                const BadOutput* outputs, int count, BadOutput* changed) noexcept;
  [[nodiscard]] bool IsPartsConstant(const Finding& finding) const noexcept;
  [[nodiscard]] bool IsInherited(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                                 int count) noexcept;
  void NameSite(Finding& finding) noexcept;
  void FillRecord(Finding& finding) noexcept;
  void FillTensors(Finding& finding) noexcept;
  void FillSamples(Finding& finding) noexcept;
  [[nodiscard]] int FillInputs(const Finding& finding, wire::TensorStats* stats) noexcept;
  void File(Finding& finding) noexcept;
  void Follow(const Finding& finding) noexcept;
  void KeepCapsule(const Finding& finding) noexcept;
  void RememberWritten(const Finding& finding) noexcept;

  const Uses uses_;
};

}  // namespace nanwatch
