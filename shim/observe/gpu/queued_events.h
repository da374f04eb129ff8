// SPDX-License-Identifier: Apache-2.0
// What the event queue's events hold (event_queue.h). They lie one behind another in its queue,
// each in one piece, and are never moved.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/observe/events/checked_tensor.h"
#include "shim/observe/events/facts.h"
#include "shim/observe/gpu/gpu_checks.h"
#include "shim/observe/thread/location.h"

namespace nanwatch {

enum class EventKind : uint8_t {
  kNothing,  // fills the queue up to its end, or its check was not made; has no `moment`
  kOp,
  kHanded,
  kBatch,
  kView,
  kPass,
  kLeaf,
  kOptimizerBegin,
  kOptimizerEnd,
  kPlainUpdate,
  kReplay,
  kSnapshot,
  kCollective,
};

struct GpuGraph;

struct QueuedEvent {
  uint32_t bytes;
  EventKind kind;
  std::atomic<bool> noted;  // false while its thread still fills it in
  uint64_t number;
  uint64_t ticket;  // of its check's launch; 0: it waits for none
  GpuGraph* graph;  // it is part of (gpu_graphs.h), or is a replay of; null: none
  Moment moment;
};

// Every event begins at a multiple of so many bytes, and what fills the queue up may have no more.
inline constexpr size_t kEventAlignment = 64;

// A tensor and what will be known of it.
struct SeenTensor {
  InputSeen seen;  // holds the storage weakly
  wire::TensorStats stats;
  int8_t looked_at;  // place among the launch's outputs or inputs; -1: not part of it
  bool unread;       // on the CPU, and may not have arrived there: known by the table alone
  // Of kHanded, as in CheckedTensor:
  wire::Target target;
  const NamedTensor* named;
  uint32_t name;
};

// Keeps a tensor in an event: held by itself, and with counts that say nothing yet.
void KeepSeen(const InputSeen& seen, SeenTensor* kept) noexcept;
// The same of one that is handed over.
void KeepHanded(const CheckedTensor& handed, SeenTensor* kept) noexcept;
[[nodiscard]] inline bool IsWritten(const InputSeen& input) noexcept {
  return input.updated || input.overwritten;
}

struct OpEvent : QueuedEvent {
  Frame frame;
  CheckedAs checked_as;
  TensorList* list = nullptr;  // of kHanded: its outputs, in the place of `tensors`; it is held
  bool is_late_copy = false;   // of kOp: EnqueueLateCopy
  bool reports = false;        // the launch tells how far the stream is
  bool sums = false;           // of a list: it is summed
  bool measures = false;       // of kHanded: each of its outputs is measured,
  uint64_t snapshot = 0;       // for this one, in which `name` is its place
  std::span<const device::SampleSpan> samples;  // of these, while it is launched
  RegionSeen region;                            // that was open, or has returned the tensors
  uint64_t ops_before = 0;                      // as of OpBatches, where it was launched
  double escaped;                               // what went to Python; 0: nothing did
  uint32_t slot;                                // of its check, in a graph
  uint32_t outputs;
  uint32_t inputs;
  SeenTensor tensors[1];  // outputs, then inputs

  static constexpr uint32_t kTensorsMax = 128;
};

struct ViewEvent : QueuedEvent {
  Frame frame;
  SeenTensor tensor;
};

struct PassEvent : QueuedEvent {
  uint64_t pass;  // its number
  SequenceRef root;
  bool tells_loss;
};

struct LeafEvent : QueuedEvent {
  const NamedTensor* named;
  bool has_gradient;
  SeenTensor gradient;
};

struct CollectiveEvent : QueuedEvent {
  CollectiveName collective;
  bool given_in;  // else these are what it hands out elsewhere
  uint32_t count;
  SeenTensor tensors[1];
};

struct SnapshotEvent : QueuedEvent {
  uint64_t snapshot;
};

struct OptimizerEvent : QueuedEvent {
  const void* optimizer;
  char range_name[96];
  Gradients gradients;
  bool stopped;
  bool ops_unwatched;
};

// Lets go of the tensors that an event holds.
void DropTensors(OpEvent* event) noexcept;
void DropTensors(QueuedEvent* event) noexcept;

// What follows from what tensors are handed over as.
[[nodiscard]] constexpr bool AreGradients(CheckedAs as) noexcept {
  return as == CheckedAs::kGradients || as == CheckedAs::kWatchedGradients;
}
// Their numbers are of no interest.
[[nodiscard]] constexpr bool IsOnlyChecked(CheckedAs as) noexcept {
  return as == CheckedAs::kWritten || as == CheckedAs::kGiven || as == CheckedAs::kReceived ||
         as == CheckedAs::kProbe || as == CheckedAs::kUnread;
}
// Only their figures are: they were or will be checked as what they are.
[[nodiscard]] constexpr bool IsForFigures(CheckedAs as) noexcept {
  return as == CheckedAs::kWatchedGradients || as == CheckedAs::kLossNumber ||
         as == CheckedAs::kScale || as == CheckedAs::kScaleOfStep ||
         as == CheckedAs::kGradientScale || as == CheckedAs::kFoundInf || as == CheckedAs::kProbe ||
         as == CheckedAs::kUnread || as == CheckedAs::kMeasuredGradients ||
         as == CheckedAs::kMeasuredResults || as == CheckedAs::kSampled ||
         as == CheckedAs::kMeasuredUpdates;
}

}  // namespace nanwatch
