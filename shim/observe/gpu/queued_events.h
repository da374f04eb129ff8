// SPDX-License-Identifier: Apache-2.0
// What the event queue's events hold (event_queue.h). They lie one behind another in its queue,
// each in one piece, and are never moved.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_cuts.h"
#include "shim/observe/step/canary.h"

namespace nanwatch {

enum class EventKind : uint8_t {
  kNothing,  // fills the queue up to its end, or its check was not made; has no `moment`
  kOp,
  kHanded,
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

struct GpuEventQueue::Event {
  uint32_t bytes;
  EventKind kind;
  std::atomic<bool> noted;  // false while its thread still fills it in
  uint64_t number;
  uint64_t ticket;  // of its check's launch; 0: it waits for none
  Graph* graph;     // it is part of (event_queue_graphs.h), or is a replay of; null: none
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
  CutTensor cut;  // at level layer
};

// Keeps one of those handed over in an event.
void KeepHanded(const CheckedTensor& handed, SeenTensor* kept) noexcept;

struct GpuEventQueue::OpEvent : Event {
  Frame frame;
  CheckedAs checked_as;
  bool is_list = false;                         // of kHanded: its outputs are looked at as a list
  bool is_late_copy = false;                    // of kOp: EnqueueLateCopy
  bool reports = false;                         // the launch tells how far the stream is
  bool sums = false;                            // of a list: it is summed
  bool measures = false;                        // instead: each of its tensors is measured,
  uint64_t snapshot = 0;                        // for this one, in which `name` is its place
  std::span<const device::SampleSpan> samples;  // of these, while it is launched
  RegionSeen region;                            // that was open, or has returned the tensors
  double escaped;                               // what went to Python; 0: nothing did
  uint32_t slot;                                // of its check, in a graph
  uint32_t outputs;
  uint32_t inputs;
  CutOp cut;
  SeenTensor tensors[1];  // outputs, then inputs

  static constexpr uint32_t kTensorsMax = 128;  // but of a list device::kListMax
};

struct GpuEventQueue::ViewEvent : Event {
  Frame frame;
  SeenTensor tensor;
};

struct GpuEventQueue::PassEvent : Event {
  uint64_t pass;  // its number
  SequenceRef root;
  bool tells_loss;
};

struct GpuEventQueue::LeafEvent : Event {
  const NamedTensor* named;
  bool has_gradient;
  SeenTensor gradient;
};

struct GpuEventQueue::CollectiveEvent : Event {
  CollectiveName collective;
  bool given_in;  // else these are what it hands out elsewhere
  uint32_t count;
  SeenTensor tensors[1];
};

struct GpuEventQueue::SnapshotEvent : Event {
  uint64_t snapshot;
};

struct GpuEventQueue::OptimizerEvent : Event {
  const void* optimizer;
  char range_name[96];
  Gradients gradients;
  bool stopped;
  bool ops_unwatched;
};

}  // namespace nanwatch
