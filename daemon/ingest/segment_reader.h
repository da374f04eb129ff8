// SPDX-License-Identifier: Apache-2.0
// Reads one segment file (proto/wire/segment.h) whose writer may be alive, dead, older, or hostile.
//
// The readers of proto/wire work on the mapped file. They copy first and validate the copy. The
// mapping survives being cut short (guarded_mapping.h). Nothing is written to it but the ring's
// released_slots.
//
// Resource type, one owner, not thread-safe. Memory is bounded: by the caps below, not by the file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/ingest/run_batch.h"
#include "proto/wire/segment.h"
#include "verdict.pb.h"

namespace nanwatch {

// Four times what this version's jobs make. What lies behind a lie about it costs memory and time.
inline constexpr uint64_t kSegmentBytesMax = uint64_t{32} << 20;
inline constexpr uint32_t kSitesMax = 1 << 16;  // sites beyond it are not read
// In a living process a slot that was reserved and never completed is passed over after this long.
inline constexpr uint64_t kHoleWaitNs = 2'000'000'000;

// What a run is doing now, for a person who watches it.
struct RunGlance {
  RunState state;                       // what the live block says
  std::vector<StepSummary> last_steps;  // oldest first
  std::optional<StatsSnapshot> last_stats;
};

class SegmentReader {
 public:
  enum class Access : uint8_t {
    kLook,     // tools: consumes nothing, works on a file opened read-only
    kConsume,  // the daemon: releases what was committed
  };
  enum class Counts : uint8_t {
    kAll,         // every site that has changed
    kOfNewSites,  // the others are news still: HasNews
  };

  // kUnsupported: another wire major; kInvalid: not a segment, or garbage; kPermission: not ours.
  static Result<SegmentReader> Open(const std::string& path, Access access);

  SegmentReader(SegmentReader&&) noexcept;
  SegmentReader& operator=(SegmentReader&&) noexcept;
  ~SegmentReader();

  [[nodiscard]] const Run& run() const;
  [[nodiscard]] const std::string& run_id() const;
  [[nodiscard]] const std::string& path() const;
  // The header as it was copied at Open: validated sizes, texts not ended by NUL possible in none.
  [[nodiscard]] const wire::SegmentHeader& header() const;

  // Goes on from where an earlier daemon stopped, and releases what that one committed and could
  // not release any more (kConsume). A cursor beyond what the segment has belongs to another
  // segment and is ignored. A job that creates its segment again after a removal keeps its numbers.
  // Where the earlier daemon passed over records, `is_stored` is asked for each that may be one of
  // them: what was completed since is read.
  using IsStored = std::function<bool(uint64_t ticket)>;
  void Resume(const SegmentCursor& cursor, const IsStored& is_stored = nullptr);

  // Everything that is new since the last Acknowledge. `to_end`: the writer is dead, holes are
  // passed over at once. Changes nothing: until the batch is acknowledged the next Read brings it
  // again. At most about kReadBytesMax are decoded; RunBatch::more then says that there is more.
  // kCorrupt when the file was cut short.
  [[nodiscard]] Result<RunBatch> Read(bool to_end, const Clock& clock,
                                      Counts counts = Counts::kAll);

  // The batch of the latest Read is safe in the database: release its ring slots (kConsume) and do
  // not bring it again.
  Status Acknowledge(const RunBatch& batch);

  // Whether anything was published since the last acknowledged batch, and whether it may hold a
  // finding or many steps, as opposed to counters: a few loads, for every tick.
  [[nodiscard]] bool HasNews() const;
  [[nodiscard]] bool HasUrgentNews() const;
  // A number that changes whenever a finding may have come: a few loads. Apart from Read.
  [[nodiscard]] uint64_t FindingsPublished() const;

  // The live block, the last steps, at most `steps_max`, and the newest snapshot of parameters: a
  // few cache lines and that, whatever the segment holds. Apart from Read and Acknowledge, which it
  // does not disturb.
  [[nodiscard]] RunGlance Glance(uint64_t steps_max) const;
  // The sites with the newest findings, newest first. Sites that only passed a bad value on (or
  // ended it) come after all others, because one bad value makes dozens of them. Reads the whole
  // site table.
  [[nodiscard]] std::vector<Site> NewestSites(size_t count_max) const;

  // Whether the writer lives, by segment.h's three tests. `now` is monotonic.
  [[nodiscard]] bool WriterLives(const Clock& clock);

  // True once the file has no name in its directory any more (removed under a running job).
  [[nodiscard]] bool IsUnlinked() const;
  [[nodiscard]] uint64_t inode() const;

 private:
  struct Impl;
  explicit SegmentReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nanwatch
