// SPDX-License-Identifier: Apache-2.0
// The segment of this process and the emitter that writes to it. Both are made when there is first
// something to report, because most processes of a job (workers, shells) never have anything.
//
// Threads: any. Making it takes a mutex of this process; everything else is one load.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/wire/control.h"
#include "proto/wire/record.h"
#include "shim/emit/emitter.h"
#include "shim/entry/observer_interface.h"
#include "shim/host/segment_file.h"

namespace nanwatch {

struct OpTraits;

// Whether the observer came into a process that ran already (`nanwatch attach`).
[[nodiscard]] bool IsLate(const NanwatchEntry& entry) noexcept;

// Who decides on the level: a new segment says which one is asked for, and carries requests for
// another one.
class LevelRequests {
 public:
  [[nodiscard]] virtual wire::Level LevelAskedFor() const noexcept = 0;
  // `control` lives as long as the process.
  virtual void ListenTo(const wire::ControlBlock& control) noexcept = 0;

 protected:
  ~LevelRequests() = default;
};

class ProcessSegment {
 public:
  // Both outlive it.
  ProcessSegment(const NanwatchEntry& entry, LevelRequests& level) noexcept
      : entry_(entry), level_(level), listens_(!IsLate(entry)) {}
  ProcessSegment(const ProcessSegment&) = delete;
  ProcessSegment& operator=(const ProcessSegment&) = delete;

  // Before the first call of the others, in a forked child.
  void BecomeChildOf(int32_t parent_pid) noexcept {
    forked_from_ = parent_pid;
    listens_ = true;
  }
  [[nodiscard]] bool is_forked() const noexcept { return forked_from_ != 0; }

  // The emitter, after making the segment if there is none yet. Null when there can be none: the
  // user was told why, once, and the observer is off from then on.
  Emitter* Ensure() noexcept;
  // Null before the segment is made.
  Emitter* emitter() const noexcept { return emitter_.load(std::memory_order_acquire); }
  // Where a model is called: a process that only waits is found by its segment. Not a forked child,
  // which gets one once there is something to report. False: the process can have none.
  bool EnsureForCall() noexcept { return is_forked() || Ensure() != nullptr; }

  // Requests for another level are followed from now on. In a process that ran already when the
  // observer came, this comes late: after the reply to a request, module names are available.
  void Listen() noexcept;

  // The id of the op's name in the segment; 0 while there is no segment. Writes to the traits'
  // cache.
  uint32_t NameOf(const OpTraits& op) const noexcept;

 private:
  const NanwatchEntry& entry_;
  LevelRequests& level_;
  int32_t forked_from_ = 0;
  std::atomic<Emitter*> emitter_{nullptr};
  std::mutex mutex_;            // covers everything below
  Segment* segment_ = nullptr;  // never freed
  bool failed_ = false;
  bool listens_;
};

}  // namespace nanwatch
