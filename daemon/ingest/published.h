// How much a segment has published so far, section by section: a few loads, by which a reader knows
// whether there is news.
#pragma once

#include <cstdint>

#include "daemon/ingest/segment_file.h"
#include "proto/wire/live_block.h"
#include "proto/wire/segment.h"

namespace nanwatch {

// Everything whose change means that there is something to read.
struct Published {
  uint64_t reserved = 0;
  uint64_t dropped = 0;
  uint64_t heartbeat = 0;
  uint64_t ops_seen = 0;
  uint64_t values_bad = 0;
  uint64_t values_dropped = 0;
  uint64_t steps = 0;
  uint64_t trails = 0;
  uint64_t stats = 0;
  uint64_t sites = 0;
  uint64_t state = 0;
  uint64_t level = 0;
  bool operator==(const Published&) const = default;
};

[[nodiscard]] Published LookAt(const SegmentFile& file);

// Whether what came since `then` may hold a finding or many steps, as opposed to counters.
[[nodiscard]] bool IsUrgent(const SegmentFile& file, const Published& then, const Published& now);

// Entries that a step ring was given so far; 0 where there is none.
[[nodiscard]] uint64_t EntriesWritten(const SegmentFile& file, wire::SectionType ring);

[[nodiscard]] inline const wire::LiveBlock& LiveBlockOf(const SegmentFile& file) {
  return *reinterpret_cast<const wire::LiveBlock*>(file.section(wire::SectionType::kLive).data);
}

}  // namespace nanwatch
