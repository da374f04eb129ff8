// SPDX-License-Identifier: Apache-2.0
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
  uint64_t reserved = 0, dropped = 0;  // tickets of the finding ring
  uint64_t heartbeat = 0, ops_seen = 0, state = 0, level = 0;
  uint64_t values_bad = 0, values_dropped = 0;
  uint64_t steps = 0, trails = 0, stats = 0, sites = 0;  // entries
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
