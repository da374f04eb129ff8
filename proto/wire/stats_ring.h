// The ring of snapshots: what the parameters of an optimizer, their gradients and their updates are
// like in one step of every so many. It is a step ring (step_ring.h) whose entries come in runs:
//
//   ... | head of snapshot 7, parameters = 3 | parameter | parameter | parameter | head of 8 | ...
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

// Parameters of one snapshot for which a ring of `capacity` entries has room: a reader that is late
// finds the last three all the same.
constexpr uint32_t StatsParametersMax(uint64_t capacity) {
  return capacity < 8 ? 0 : static_cast<uint32_t>(capacity / 4 - 1);
}

// What a reader takes for a snapshot at most, so that no file can make it take the memory of more.
inline constexpr uint64_t kStatsParametersReadMax = 4096;

// The job's half. Any thread; snapshots take turns by a private mutex. Does not own the section,
// which must be zero.
class StatsWriter {
 public:
  StatsWriter(StepRingHeader* header, uint64_t capacity) noexcept
      : ring_(header, capacity), parameters_max_(StatsParametersMax(capacity)) {}

  [[nodiscard]] uint32_t parameters_max() const noexcept { return parameters_max_; }

  // `parameters`: at most parameters_max(), else nothing is written. `head.parameters` is ignored.
  void Publish(StatsHead head, std::span<const StatsParameter> parameters,
               uint64_t time_ns) noexcept {
    if (parameters.size() > parameters_max_) return;
    const std::lock_guard lock(mutex_);
    StatsEntry entry{};
    entry.time_ns = time_ns;
    entry.snapshot = snapshots_++;
    head.parameters = static_cast<uint32_t>(parameters.size());
    Write(StatsEntry::kHead, &head, sizeof head, entry);
    for (const StatsParameter& parameter : parameters) {
      Write(StatsEntry::kParameter, &parameter, sizeof parameter, entry);
    }
  }

 private:
  void Write(StatsEntry::Kind kind, const void* payload, size_t bytes, StatsEntry& entry) noexcept {
    entry.kind = kind;
    std::memcpy(entry.payload, payload, bytes);
    ring_.Publish(entry);
  }

  StepRingWriter<StatsEntry> ring_;
  uint32_t parameters_max_;
  std::mutex mutex_;
  uint64_t snapshots_ = 0;
};

// A snapshot in private memory. Its numbers and name ids may be anything, but for the size of
// `parameters`, at most kStatsParametersReadMax.
struct StatsCopy {
  uint64_t snapshot = 0;
  uint64_t time_ns = 0;
  StatsHead head{};
  std::vector<StatsParameter> parameters;
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
    for (uint64_t left = ring_.capacity(); left > 0 && ring_.Read(entry); --left) {
      const uint64_t head_at = ring_.cursor() - 1;
      std::memcpy(&out.head, entry.payload, sizeof out.head);
      const uint64_t count = out.head.parameters;
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
      if (ReadParameters(head_at + 1, count, out)) {
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

  bool ReadParameters(uint64_t at, uint64_t count, StatsCopy& out) {
    out.parameters.resize(count);
    StatsEntry entry{};
    for (StatsParameter& parameter : out.parameters) {
      if (!ring_.ReadAt(at++, entry) || entry.kind != StatsEntry::kParameter ||
          entry.snapshot != out.snapshot) {
        return false;
      }
      std::memcpy(&parameter, entry.payload, sizeof parameter);
    }
    return true;
  }

  const StepRingHeader* header_;
  StepRingReader<StatsEntry> ring_;
  uint64_t parameters_max_;
  uint64_t orphans_ = 0;
};

}  // namespace nanwatch::wire
