// SPDX-License-Identifier: Apache-2.0
// Snapshots of parameters (parameter_stats.h) while what a GPU says of them is awaited: all else of
// them is known, and in each parameter's place its figures are filled in as answers come.
//
// The event queue adds these (gpu/event_queue_figures.cc), and behind them that the snapshot's last
// one has been told, or will never be. Any thread; allocation where a snapshot begins to be
// awaited.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "proto/wire/segment.h"
#include "shim/check/moments.h"

namespace nanwatch {

// The gradient of `numel` elements was read.
void FillGradient(const Moments& moments, uint64_t numel, wire::StatsParameter* told) noexcept;

// And the update, of the sample of which `sampled` tells.
void FillUpdate(const Change& change, wire::StatsParameter* told) noexcept;

class AwaitedSnapshots {
 public:
  struct Snapshot {
    wire::StatsHead head{};
    std::vector<wire::StatsParameter> parameters;
    uint64_t time_ns = 0;  // CLOCK_MONOTONIC, of the end of the step
  };

  // A thousand parameters are 96 KB. A GPU is rarely more than a few steps behind, so that only who
  // wants a snapshot of each of them comes to this.
  static constexpr size_t kAwaitedMax = 8;
  [[nodiscard]] bool HasRoom() noexcept;

  // Its number, from 1.
  uint64_t Await(Snapshot snapshot);
  // Of the parameter at `place` in the list of snapshot `number`. Nothing if that is gone.
  void AddGradient(uint64_t number, uint32_t place, const Moments& moments) noexcept;
  void AddUpdate(uint64_t number, uint32_t place, const Change& change) noexcept;
  // False: it is gone.
  bool Take(uint64_t number, Snapshot* snapshot) noexcept;
  // The one that was awaited first, if any is.
  bool TakeFirst(Snapshot* snapshot) noexcept;

 private:
  struct Awaited {
    uint64_t number;
    Snapshot snapshot;
  };
  wire::StatsParameter* Find(uint64_t number, uint32_t place) noexcept;

  std::mutex mutex_;
  std::deque<Awaited> awaited_;  // in the order of their numbers
  uint64_t last_number_ = 0;
};

}  // namespace nanwatch
