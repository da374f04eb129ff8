// From a bad value to its record: the slow path, entered only when something is not finite.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

#include "shim/observe/observer.h"
#include "shim/observe/sources.h"
#include "shim/observe/torch_tensor.h"

namespace nanwatch {

// An op's outputs or written arguments are bad. `frame` is the op's own, already popped.
void OnBadOutputs(Observer& observer, ThreadState* thread, Frame& frame, const BadOutput* outputs,
                  int count) noexcept;

// While armed: an op ended and everything it wrote is clean.
void OnCleanOutputs(Observer& observer, ThreadState* thread, Frame& frame) noexcept;

// While armed: an op returned memory of another's (a view), or wrote values nobody needs to look
// at.
void OnSkippedOutput(Observer& observer, ThreadState* thread, const Frame& frame,
                     const PlainTensor& tensor) noexcept;

// A non-finite scalar went to Python.
void OnEscape(Observer& observer, ThreadState* thread, Frame& frame, double value) noexcept;

// A bad value whose writer ran out of sight: a compiled region, a collective. `op` names it.
struct UnseenWriter {
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
[[nodiscard]] UnseenWriter UnseenAt(const char* op, const Layer* layer, wire::Phase phase,
                                    uint8_t kinds, ValueRef from) noexcept;
ValueRef OnUnseenWrite(Observer& observer, ThreadState* thread, const PlainTensor& tensor,
                       const UnseenWriter& writer) noexcept;

// Writes out the records of `value` and of what it came from, as far as they were held back.
void WriteAncestors(Observer& observer, ValueRef value) noexcept;

// Fills kind, bytes, ticket, thread, time and clocks.
wire::RecordHeader MakeHeader(Observer& observer, ThreadState* thread, Emitter& emitter,
                              wire::RecordKind kind, size_t bytes) noexcept;

}  // namespace nanwatch
