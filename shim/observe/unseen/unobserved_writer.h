// SPDX-License-Identifier: Apache-2.0
// A bad value whose writer ran out of sight: a compiled region, a collective, what level canary
// does not watch. Its record says what is known of the writer.
#pragma once

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class FindingRecords;
class KnownBad;
class Poison;
class ProcessSegment;
struct NamedTensor;

// `op` names it.
struct UnobservedWriter {
  const char* op;
  const char* node;  // the autograd node it ran in; null for the one that is open
  const Layer* layer;
  wire::Phase phase;
  wire::FindingClass finding_class;
  uint32_t flags;  // ValueRecord::Flag
  // What bad went in.
  wire::Source sources[wire::kSourcesMax];
  ValueRef values[wire::kSourcesMax];
  int source_count;
  // What it wrote over, if that has a name or a part in the training.
  const NamedTensor* named;
  wire::Target target;
  // Not what a validation made, though it is met where autograd records nothing.
  bool made_with_gradients;
  // Where it lies is known, so that what reads it there comes of it.
  bool has_memory = true;

  void Add(const wire::Source& source, ValueRef value) noexcept {
    if (source_count == wire::kSourcesMax) return;
    sources[source_count] = source;
    values[source_count++] = value;
  }
};

// Where an op is named only for the reader to know where a value was met that nobody saw made.
// `from`: what is known to be bad already in this step, and explains the rest of it.
inline constexpr char kModuleCall[] = "torch.nn.Module.__call__";
inline constexpr char kBackwardCall[] = "torch.autograd.backward";
inline constexpr char kNumberRead[] = "torch.Tensor.item";
inline constexpr char kFiniteAsked[] = "torch.isfinite";
inline constexpr char kOptimizerStep[] = "torch.optim.Optimizer.step";
[[nodiscard]] UnobservedWriter UnseenAt(const char* op, const Layer* layer, wire::Phase phase,
                                        uint8_t kinds, ValueRef from) noexcept;

// Threads: any.
class UnobservedWrites {
 public:
  // All outlive it.
  UnobservedWrites(ProcessSegment& segment, FindingRecords& records, KnownBad& known_bad,
                   Poison& poison) noexcept
      : segment_(segment), records_(records), known_bad_(known_bad), poison_(poison) {}

  // `tensor` is bad. Ticket 0: nothing is recorded now.
  ValueRef Record(ThreadState* thread, const PlainTensor& tensor,
                  const UnobservedWriter& writer) noexcept;

 private:
  ProcessSegment& segment_;
  FindingRecords& records_;
  KnownBad& known_bad_;
  Poison& poison_;
};

}  // namespace nanwatch
