// SPDX-License-Identifier: Apache-2.0
// What the two halves of the event queue share: the one that enqueues (event_queue.h) and the one
// that resolves (resolver.h).
#pragma once

#include <atomic>

#include "shim/observe/gpu/event_ring.h"
#include "shim/observe/gpu/gpu_checks.h"
#include "shim/observe/gpu/gpu_collective_results.h"
#include "shim/observe/gpu/op_batches.h"

namespace nanwatch {

struct GpuGraphs;

struct GpuState {
  explicit GpuState(const NanwatchEntry& entry) noexcept : batches(checks, ring, entry) {}

  // Events are enqueued: a tensor of a GPU was seen.
  [[nodiscard]] bool On() const noexcept { return on.load(std::memory_order_acquire); }

  std::atomic<bool> on{false};
  GpuChecks checks;
  EventRing ring;
  OpBatches batches;
  GpuCollectiveResults collective_results;
  GpuGraphs* graphs = nullptr;  // says itself what covers it
  // The thread that has captured something into a graph whose end was not seen; null: there is
  // none.
  std::atomic<const ThreadState*> captures{nullptr};
};

}  // namespace nanwatch
