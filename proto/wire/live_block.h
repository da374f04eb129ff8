// SPDX-License-Identifier: Apache-2.0
// The live block: what the job is doing now, overwritten at every step or so.
//
// Every counter is one atomic and recent by itself. Clocks and loss belong together and stand under
// a seqlock, `sequence`: odd while they are written. (Orders as argued in step_ring.h.)
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>

#include "proto/wire/segment.h"
#include "proto/wire/shared_words.h"

namespace nanwatch::wire {

// What the checks cost, by blocks of steps with and without them.
struct Overhead {
  static constexpr int kPairsBit = 48;
  static constexpr int kOffNowBit = 63;
  static constexpr uint32_t kPairsMax = (1u << (kOffNowBit - kPairsBit)) - 1;

  double percent = 0;  // this and the interval are valid where there are pairs
  double low = 0;
  double high = 0;
  uint32_t pairs = 0;
  uint64_t steps_off = 0;
  bool off_now = false;  // steps went unchecked, and nothing was read since

  [[nodiscard]] uint64_t Packed() const noexcept {
    constexpr uint64_t kStepsMax = (uint64_t{1} << kPairsBit) - 1;
    return (steps_off < kStepsMax ? steps_off : kStepsMax) |
           uint64_t{pairs < kPairsMax ? pairs : kPairsMax} << kPairsBit |
           uint64_t{off_now} << kOffNowBit;
  }
  static Overhead Of(const std::array<uint64_t, 3>& figures, uint64_t packed) noexcept {
    return {.percent = std::bit_cast<double>(figures[0]),
            .low = std::bit_cast<double>(figures[1]),
            .high = std::bit_cast<double>(figures[2]),
            .pairs = static_cast<uint32_t>(packed >> kPairsBit) & kPairsMax,
            .steps_off = packed & ((uint64_t{1} << kPairsBit) - 1),
            .off_now = (packed >> kOffNowBit) != 0};
  }
};

// The live block's contents but for what its writer counts itself (tickets, dropped names, sites,
// records).
struct LiveFacts {
  uint64_t ops_seen = 0;
  uint64_t tensors_checked = 0;
  uint64_t bytes_checked = 0;
  uint64_t values_bad = 0;
  uint64_t unchecked[kUncheckedReasons] = {};
  uint64_t steps_watched[kWatchedLevels] = {};
  Overhead overhead;
  uint64_t control_applied = 0;
  uint64_t last_clean_collective = 0;
  LiveState state = LiveState::kStarting;
  Level level = Level::kIdle;
  uint32_t gpus = 0;
  Clocks clocks{};
  double loss = std::numeric_limits<double>::quiet_NaN();
  bool loss_known = false;
};

// Clocks, loss, loss_known: contiguous, copied as a whole.
inline constexpr size_t kLiveGuardedBytes = sizeof(Clocks) + sizeof(double) + sizeof(uint64_t);
static_assert(offsetof(LiveBlock, loss) == offsetof(LiveBlock, clocks) + sizeof(Clocks));
static_assert(offsetof(LiveBlock, loss_known) == offsetof(LiveBlock, loss) + sizeof(double));
struct LiveGuarded {
  Clocks clocks;
  double loss;
  uint64_t loss_known;
};
static_assert(sizeof(LiveGuarded) == kLiveGuardedBytes);

// The job's half. Any thread, turns taken by a private mutex. Does not own the block, which must be
// zero.
class LiveWriter {
 public:
  explicit LiveWriter(LiveBlock* block) noexcept : block_(block) {}

  void Publish(const LiveFacts& facts, uint64_t now_ns) noexcept {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    const std::lock_guard lock(mutex_);
    block_->ops_seen.store(facts.ops_seen, kRelaxed);
    block_->tensors_checked.store(facts.tensors_checked, kRelaxed);
    block_->bytes_checked.store(facts.bytes_checked, kRelaxed);
    block_->values_bad.store(facts.values_bad, kRelaxed);
    for (int i = 0; i < kUncheckedReasons; ++i) {
      block_->unchecked[i].store(facts.unchecked[i], kRelaxed);
    }
    for (int i = 0; i < kWatchedLevels; ++i) {
      block_->steps_watched[i].store(facts.steps_watched[i], kRelaxed);
    }
    const double figures[] = {facts.overhead.percent, facts.overhead.low, facts.overhead.high};
    for (int i = 0; i < 3; ++i) {
      block_->overhead[i].store(std::bit_cast<uint64_t>(figures[i]), kRelaxed);
    }
    block_->measuring.store(facts.overhead.Packed(), kRelaxed);
    block_->control_applied.store(facts.control_applied, kRelaxed);
    block_->last_clean_collective.store(facts.last_clean_collective, kRelaxed);
    block_->state.store(static_cast<uint32_t>(facts.state), kRelaxed);
    block_->level.store(static_cast<uint32_t>(facts.level), kRelaxed);
    block_->gpus.store(facts.gpus, kRelaxed);
    const LiveGuarded guarded{facts.clocks, facts.loss, facts.loss_known ? uint64_t{1} : 0};
    block_->sequence.store(++sequence_, kRelaxed);
    StoreWords(&block_->clocks, &guarded, sizeof guarded);
    block_->sequence.store(++sequence_, std::memory_order_release);
    block_->heartbeat_ns.store(now_ns, std::memory_order_release);
  }

 private:
  LiveBlock* block_;
  std::mutex mutex_;
  uint32_t sequence_ = 0;
};

// The daemon's half: a private copy. `consistent` is false when clocks and loss were being written
// at every look (a job killed in the middle leaves them so for ever): they may then be of two
// moments. `state` and `level` may hold anything.
struct LiveCopy {
  LiveFacts facts;
  uint64_t heartbeat_ns = 0;
  uint64_t values_dropped = 0;
  uint64_t names_dropped = 0;
  uint64_t sites_dropped = 0;
  uint64_t tickets = 0;
  bool consistent = false;
};

[[nodiscard]] inline LiveCopy ReadLive(const LiveBlock& block) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  LiveCopy copy;
  copy.heartbeat_ns = block.heartbeat_ns.load(std::memory_order_acquire);
  copy.values_dropped = block.values_dropped.load(kRelaxed);
  copy.names_dropped = block.names_dropped.load(kRelaxed);
  copy.sites_dropped = block.sites_dropped.load(kRelaxed);
  copy.tickets = block.tickets.load(kRelaxed);
  LiveFacts& facts = copy.facts;
  facts.ops_seen = block.ops_seen.load(kRelaxed);
  facts.tensors_checked = block.tensors_checked.load(kRelaxed);
  facts.bytes_checked = block.bytes_checked.load(kRelaxed);
  facts.values_bad = block.values_bad.load(kRelaxed);
  for (int i = 0; i < kUncheckedReasons; ++i)
    facts.unchecked[i] = block.unchecked[i].load(kRelaxed);
  for (int i = 0; i < kWatchedLevels; ++i)
    facts.steps_watched[i] = block.steps_watched[i].load(kRelaxed);
  std::array<uint64_t, 3> figures{};
  for (size_t i = 0; i < figures.size(); ++i) figures[i] = block.overhead[i].load(kRelaxed);
  facts.overhead = Overhead::Of(figures, block.measuring.load(kRelaxed));
  facts.control_applied = block.control_applied.load(kRelaxed);
  facts.last_clean_collective = block.last_clean_collective.load(kRelaxed);
  facts.state = static_cast<LiveState>(block.state.load(kRelaxed));
  facts.level = static_cast<Level>(block.level.load(kRelaxed));
  facts.gpus = block.gpus.load(kRelaxed);
  LiveGuarded guarded{};
  for (int look = 0; look < 64 && !copy.consistent; ++look) {
    const uint32_t before = block.sequence.load(std::memory_order_acquire);
    LoadWords(&guarded, &block.clocks, sizeof guarded);
    copy.consistent = before % 2 == 0 && block.sequence.load(kRelaxed) == before;
  }
  facts.clocks = guarded.clocks;
  facts.loss = guarded.loss;
  facts.loss_known = guarded.loss_known == 1;
  return copy;
}

}  // namespace nanwatch::wire
