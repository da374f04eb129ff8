// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/stats_section.h"

#include <algorithm>
#include <cstdint>

#include "daemon/ingest/published.h"
#include "daemon/ingest/stats_decoder.h"
#include "proto/wire/stats_ring.h"

namespace nanwatch {

using wire::SectionType;

void ReadStats(const SegmentFile& file, const NameCache& names, ReadBudget& budget,
               SegmentCursor& cursor, RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kStats);
  std::optional<wire::StatsReader> reader =
      wire::StatsReader::Open(section.data, section.bytes, cursor.stats);
  if (!reader) return;
  LapLimit lap(section.bytes / sizeof(wire::StatsEntry), reader->cursor());
  wire::StatsCopy copy;
  while (true) {
    const bool stop = lap.IsReached(reader->cursor()) || budget.is_spent();
    batch.more |= stop;
    if (stop || !reader->Read(copy)) break;
    batch.stats.push_back(DecodeStats(copy, names));
    budget.Take(batch.stats.back());
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
  if (!reader) return std::nullopt;
  LapLimit lap(2 * half, reader->cursor());
  bool any = false;
  while (!lap.IsReached(reader->cursor()) && reader->Read(copy)) any = true;
  return any ? std::optional(DecodeStats(copy, names)) : std::nullopt;
}

}  // namespace nanwatch
