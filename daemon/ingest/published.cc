// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/published.h"

#include "proto/wire/ring.h"
#include "proto/wire/site_table.h"
#include "proto/wire/stats_ring.h"
#include "proto/wire/step_ring.h"

namespace nanwatch {

using wire::SectionType;

uint64_t EntriesWritten(const SegmentFile& file, SectionType ring) {
  const SegmentFile::Section& section = file.section(ring);
  if (section.bytes < sizeof(wire::StepRingHeader)) return 0;
  return reinterpret_cast<const wire::StepRingHeader*>(section.data)
      ->written.load(std::memory_order_relaxed);
}

Published LookAt(const SegmentFile& file) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Published look;
  if (const auto ring = file.section(SectionType::kFindings);
      ring.bytes >= sizeof(wire::RingHeader)) {
    const auto* header = reinterpret_cast<const wire::RingHeader*>(ring.data);
    look.reserved = header->reserved_slots.load(kRelaxed);
    look.dropped = header->records_dropped.load(kRelaxed);
  }
  look.steps = EntriesWritten(file, SectionType::kSteps);
  look.stats = EntriesWritten(file, SectionType::kStats);
  look.trails = EntriesWritten(file, SectionType::kTrail);
  if (const auto sites = file.section(SectionType::kSites);
      sites.bytes >= sizeof(wire::SiteTableHeader)) {
    look.sites = reinterpret_cast<const wire::SiteTableHeader*>(sites.data)->used.load(kRelaxed);
  }
  const wire::LiveBlock& live = LiveBlockOf(file);
  look.heartbeat = live.heartbeat_ns.load(kRelaxed);
  look.ops_seen = live.ops_seen.load(kRelaxed);
  look.values_bad = live.values_bad.load(kRelaxed);
  look.values_dropped = live.values_dropped.load(kRelaxed);
  look.state = live.state.load(kRelaxed);
  look.level = live.level.load(kRelaxed);
  return look;
}

bool IsUrgent(const SegmentFile& file, const Published& then, const Published& now) {
  const uint64_t steps_max = file.section(SectionType::kSteps).bytes / sizeof(wire::StepEntry);
  const uint64_t stats_max = file.section(SectionType::kStats).bytes / sizeof(wire::StatsEntry);
  return now.reserved != then.reserved || now.dropped != then.dropped || now.sites != then.sites ||
         now.trails != then.trails || now.values_bad != then.values_bad ||
         now.values_dropped != then.values_dropped || now.steps - then.steps > steps_max / 4 ||
         now.stats - then.stats > stats_max / 4;
}

}  // namespace nanwatch
