// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/stats_section.h"

#include <algorithm>
#include <cstdint>

#include "daemon/ingest/published.h"
#include "daemon/ingest/record_decoder.h"
#include "proto/wire/stats_ring.h"

namespace nanwatch {

using wire::SectionType;

// One lap of the ring at most, as steps.
void ReadStats(const SegmentFile& file, const NameCache& names, SegmentCursor& cursor,
               RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kStats);
  std::optional<wire::StatsReader> reader =
      wire::StatsReader::Open(section.data, section.bytes, cursor.stats);
  if (!reader) return;
  uint64_t left = section.bytes / sizeof(wire::StatsEntry);
  wire::StatsCopy copy;
  while (left > 0 && reader->Read(copy)) {
    left -= std::min<uint64_t>(left, 1 + copy.parameters.size() + copy.layers.size());
    batch.stats.push_back(DecodeStats(copy, names));
  }
  cursor.stats = reader->cursor();
  cursor.stats_lost += reader->lost();
}

// A snapshot takes at most a quarter of the ring: the newest begins in the last half.
std::optional<StatsSnapshot> ReadNewestStats(const SegmentFile& file, const NameCache& names) {
  const SegmentFile::Section& section = file.section(SectionType::kStats);
  const uint64_t half = section.bytes / sizeof(wire::StatsEntry) / 2;
  const uint64_t written = EntriesWritten(file, SectionType::kStats);
  std::optional<wire::StatsReader> reader =
      wire::StatsReader::Open(section.data, section.bytes, written - std::min(written, half));
  wire::StatsCopy copy;
  bool any = false;
  for (uint64_t left = half; reader && left > 0 && reader->Read(copy); --left) any = true;
  return any ? std::optional(DecodeStats(copy, names)) : std::nullopt;
}

}  // namespace nanwatch
