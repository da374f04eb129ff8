// SPDX-License-Identifier: Apache-2.0
// A bad number that left the tensors: Python read it, or the program compared it with another.
//
// Threads: any. Called only where something is bad.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/classify/recent_values.h"
#include "shim/observe/finding/read_sites.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class CompiledWrites;
class Emitter;
class FindingRecords;
class LossRoots;
class Poison;
class ProcessSegment;
class ReadNumbers;

class ScalarReads {
 public:
  // All outlive it.
  struct Uses {
    ProcessSegment& segment;
    FindingRecords& records;
    RecentValues& recent;
    const Poison& poison;
    ReadNumbers& read_numbers;
    LossRoots& loss_roots;
    CompiledWrites& compiled_writes;
  };
  explicit ScalarReads(const Uses& uses) noexcept : uses_(uses) {}

  // The op of this frame has handed a number to Python that is not finite.
  void OnRead(ThreadState* thread, const Frame& frame, double number) noexcept;
  // Tensor.numpy() or Tensor.tolist() of a tensor that is NaN throughout. A NaN among numbers often
  // marks what is missing (the IoU of a class that is absent), for nanmean() to leave out.
  void OnReadAll(ThreadState* thread, const Frame& frame) noexcept;
  // A program that tests its loss and leaves a bad one out neither begins a pass at it nor need it
  // read the number: what can be seen is that one number was compared. A validation loss counts
  // where the program asks which of two numbers is smaller, as early stopping does.
  void OnCompared(ThreadState* thread, const Frame& frame, Emitter& emitter) noexcept;

  // What was read, the record of it in the making.
  struct Read {
    uint32_t op;          // the id of the name of what read it
    wire::Source source;  // what it came from,
    ValueRef value;       // if that is known
    double number;
    bool of_many = false;     // it is one of several numbers that were read together
    bool asked_only = false;  // it was asked whether it is finite, and not read
  };
  void Emit(ThreadState* thread, Emitter& emitter, const Read& read) noexcept;

 private:
  [[nodiscard]] bool MayBeLoss(ValueRef value) noexcept;
  [[nodiscard]] bool NeedsNoGradient(ValueRef value) noexcept;

  const Uses uses_;
  ReadSites read_sites_;
};

}  // namespace nanwatch
