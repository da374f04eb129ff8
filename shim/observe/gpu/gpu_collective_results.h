// SPDX-License-Identifier: Apache-2.0
// What collectives have brought into a GPU's memory, or are bringing there.
//
// Nobody says when it has come: NCCL writes on a stream of its own, and the job has its own streams
// wait for that. So nothing is looked at when the collective ends. Instead it is noted where
// results will lie, and by which event of the event queue: a bad value that is met there later, and
// that no op since is known to have written, has come by the newest of these that is older than the
// one who meets it. An op that writes over such memory in place would leave nothing to be looked
// at: before it begins a launch looks (GpuEventQueue::LookAtReceived).
//
// Threads: any; one lock, taken only for collectives, for ops that write in place while results lie
// unlooked at, and where something bad of unknown origin is told. Memory is taken with the first
// collective.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "shim/classify/bad_values.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

struct Layer;

class GpuCollectiveResults {
 public:
  struct CollectiveResult {
    WeakStorage storage;  // holds it weakly
    uint64_t byte_begin;
    uint64_t byte_end;
    uint64_t event;  // that noted it
    uint32_t step;   // steps completed when that was told, plus one; 0: it is not told yet
    CollectiveName collective;
    const Layer* layer;
    bool given_in;   // what was given in lay there
    bool looked_at;  // or nobody will have to
    // What it was told as; `own`: this rank had given it in bad. Ticket 0: not told.
    ValueRef value;
    uint32_t site;
    bool own;
  };

  // False: there is no memory.
  bool Record(const InputSeen& tensor, const CollectiveName& collective, const Layer* layer,
              uint64_t event, bool given_in) noexcept;

  // Of results of which nobody has looked at what came.
  [[nodiscard]] bool AnyUnlooked() const noexcept {
    return unlooked_.load(std::memory_order_relaxed) != 0;
  }
  // True once for each of them: the tensor lies there.
  bool TakeUnlooked(const InputSeen& tensor) noexcept;

  // The newest event's that overlaps the bytes and is older than `event`.
  bool Find(const void* storage, uint64_t byte_begin, uint64_t byte_end, uint64_t event,
            CollectiveResult* found) noexcept;
  // The event, which has recorded `count` of these, is resolved, `step` steps being completed.
  void SetStep(uint64_t event, uint32_t count, uint32_t step) noexcept;
  // What the results in this place that this event has noted were told as.
  void SetValue(const CollectiveResult& of, ValueRef value, uint32_t site, bool own) noexcept;

 private:
  // By no means in the order of their events: a thread that was interrupted between taking its
  // event's number and recording here comes after events that are newer.
  //
  // Some steps of a model whose hundred layers are gathered and reduced one by one.
  static constexpr uint64_t kKept = 1024;
  // An op in place looks through these.
  static constexpr uint64_t kUnlookedMax = 256;

  std::mutex mutex_;
  std::unique_ptr<CollectiveResult[]> kept_;
  uint64_t count_ = 0;  // ever noted
  std::atomic<uint64_t> unlooked_{0};
};

}  // namespace nanwatch
