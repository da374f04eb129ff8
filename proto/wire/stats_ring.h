// SPDX-License-Identifier: Apache-2.0
// The ring of snapshots: what the parameters of an optimizer, their gradients and their updates are
// like in one step of every so many. It is a step ring (step_ring.h) whose entries come in runs:
//
//   ... | head of 7, parameters = 2, layers = 1 | parameter | parameter | layer | head of 8 | ...
//
// A run is written in one go, so nothing stands between its entries; the oldest entries are
// overwritten, a part of a run included. A reader gives out whole runs only, and counts the entries
// of all others as lost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "proto/wire/segment.h"
#include "proto/wire/step_ring.h"

namespace nanwatch::wire {

// Parameters and layers of one snapshot for which a ring of `capacity` entries has room: a reader
// that is late finds the last three all the same.
constexpr uint32_t StatsParametersMax(uint64_t capacity) {
  return capacity < 8 ? 0 : static_cast<uint32_t>(capacity / 4 - 1);
}

// A ring is made no smaller than this when its first snapshot shows how large they are.
inline constexpr uint64_t kStatsEntriesLeast = 1024;

// What a reader takes for a snapshot at most, so that no file can make it take the memory of more.
inline constexpr uint64_t kStatsParametersReadMax = 4096;

// The job's half. Any thread; snapshots take turns by a private mutex. Does not own the section,
// which must be zero.
class StatsWriter {
 public:
  // `room` is that of the entries, nullptr where all have pages: the ring is then made only as
  // large as two of the largest snapshot, or kStatsEntriesLeast.
  StatsWriter(StepRingHeader* header, uint64_t capacity, SectionRoom* room = nullptr) noexcept
      : ring_(header, capacity, room),
        parameters_max_(StatsParametersMax(capacity)),
        fits_(room != nullptr) {}

  [[nodiscard]] uint32_t parameters_max() const noexcept { return parameters_max_; }

  // `parameters`: at most parameters_max(), else nothing is written; of the layers as many as there
  // is room for beside them. `head.parameters` and `head.layers` are ignored.
  void Publish(StatsHead head, std::span<const StatsParameter> parameters,
               std::span<const StatsLayer> layers, uint64_t time_ns) noexcept {
    if (parameters.size() > parameters_max_) return;
    layers = layers.first(std::min<size_t>(layers.size(), parameters_max_ - parameters.size()));
    const std::lock_guard lock(mutex_);
    const uint64_t entries = 1 + parameters.size() + layers.size();
    if (fits_ && entries > largest_) {
      largest_ = entries;
      ring_.SetCapacity(std::max(kStatsEntriesLeast, 2 * entries));
    }
    const uint64_t snapshot = snapshots_++;
    if (!ring_.MakeRoom(entries)) return;  // the gap in the numbers shows it
    StatsEntry entry{};
    entry.time_ns = time_ns;
    entry.snapshot = snapshot;
    head.parameters = static_cast<uint32_t>(parameters.size());
    head.layers = static_cast<uint32_t>(layers.size());
    Write(StatsEntry::kHead, &head, sizeof head, entry);
    for (const StatsParameter& parameter : parameters) {
      Write(StatsEntry::kParameter, &parameter, sizeof parameter, entry);
    }
    for (const StatsLayer& layer : layers) Write(StatsEntry::kLayer, &layer, sizeof layer, entry);
  }

  // As StepRingWriter's.
  void Restore() noexcept { ring_.Restore(); }

 private:
  void Write(StatsEntry::Kind kind, const void* payload, size_t bytes, StatsEntry& entry) noexcept {
    entry.kind = kind;
    std::memcpy(entry.payload, payload, bytes);
    ring_.Publish(entry);
  }

  StepRingWriter<StatsEntry> ring_;
  uint32_t parameters_max_;
  bool fits_;
  std::mutex mutex_;
  uint64_t largest_ = 0;  // entries of a snapshot
  uint64_t snapshots_ = 0;
};

// A snapshot in private memory. Its numbers and name ids may be anything, but for the size of
// the two lists, which together have kStatsParametersReadMax at most.
struct StatsCopy {
  uint64_t snapshot = 0;
  uint64_t time_ns = 0;
  StatsHead head{};
  std::vector<StatsParameter> parameters;
  std::vector<StatsLayer> layers;
};

// The daemon's half. Reads only, behind a cursor of its own; one thread.
class StatsReader {
 public:
  // As StepRingReader::Open.
  [[nodiscard]] static std::optional<StatsReader> Open(const void* section, size_t size,
                                                       uint64_t cursor = 0) {
    auto ring = StepRingReader<StatsEntry>::Open(section, size, cursor);
    if (!ring) return {};
    return StatsReader(section, *ring);
  }

  // Copies the next whole snapshot and goes on; false when there is none yet, also while one is
  // being written (or was never finished). Looks at one lap of entries at most.
  [[nodiscard]] bool Read(StatsCopy& out) {
    StatsEntry entry{};
    uint64_t begin = ring_.cursor();
    for (bool first = true; ring_.Read(entry); first = false) {
      const uint64_t head_at = ring_.cursor() - 1;
      if (first) begin = head_at;  // who comes late begins further on
      if (head_at - begin >= ring_.capacity()) {
        ring_.Seek(head_at);
        return false;
      }
      std::memcpy(&out.head, entry.payload, sizeof out.head);
      const uint64_t parameters = out.head.parameters;
      const uint64_t count = parameters + out.head.layers;
      if (entry.kind != StatsEntry::kHead || count > parameters_max_) {
        ++orphans_;  // its head was overwritten; or no writer's doing
        continue;
      }
      if (header_->written.load(std::memory_order_acquire) < head_at + 1 + count) {
        ring_.Seek(head_at);
        return false;
      }
      out.snapshot = entry.snapshot;
      out.time_ns = entry.time_ns;
      if (ReadAll(StatsEntry::kParameter, head_at + 1, parameters, out.snapshot, out.parameters) &&
          ReadAll(StatsEntry::kLayer, head_at + 1 + parameters, count - parameters, out.snapshot,
                  out.layers)) {
        ring_.Seek(head_at + 1 + count);
        return true;
      }
      ++orphans_;  // and what still stands of it is counted as it is met
    }
    return false;
  }

  // Entry to go on with.
  [[nodiscard]] uint64_t cursor() const noexcept { return ring_.cursor(); }
  // Entries of snapshots that were not whole any more.
  [[nodiscard]] uint64_t lost() const noexcept { return ring_.lost() + orphans_; }

 private:
  StatsReader(const void* section, const StepRingReader<StatsEntry>& ring) noexcept
      : header_(static_cast<const StepRingHeader*>(section)),
        ring_(ring),
        parameters_max_(std::min(ring.capacity() - 1, kStatsParametersReadMax)) {}

  template <typename Payload>
  bool ReadAll(StatsEntry::Kind kind, uint64_t at, uint64_t count, uint64_t snapshot,
               std::vector<Payload>& out) {
    out.resize(count);
    StatsEntry entry{};
    for (Payload& payload : out) {
      if (!ring_.ReadAt(at++, entry) || entry.kind != kind || entry.snapshot != snapshot) {
        return false;
      }
      std::memcpy(&payload, entry.payload, sizeof payload);
    }
    return true;
  }

  const StepRingHeader* header_;
  StepRingReader<StatsEntry> ring_;
  uint64_t parameters_max_;
  uint64_t orphans_ = 0;
};

}  // namespace nanwatch::wire
