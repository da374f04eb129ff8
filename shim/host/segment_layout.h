// SPDX-License-Identifier: Apache-2.0
// How large the sections of a segment are, and where they lie.
#pragma once

#include <cstdint>

#include "proto/wire/name_table.h"
#include "proto/wire/segment.h"
#include "proto/wire/site_table.h"
#include "proto/wire/stats_ring.h"
#include "proto/wire/step_ring.h"

namespace nanwatch {

struct SegmentLayout {
  uint32_t ring_slots;  // a power of two
  uint32_t steps;
  uint32_t stats;  // entries
  uint32_t sites;
  uint32_t names;
  uint32_t name_bytes;  // a multiple of 8
};

// 4 MiB of records are about 10,000 findings: minutes of a job that writes bad values in every op,
// while the daemon drains within 50 ms. These are lengths, not pages: a section has pages as far as
// it was written. A healthy job fills the rings of steps and of snapshots in the end, and names.
inline constexpr SegmentLayout kSegmentLayout{.ring_slots = 1 << 16,
                                              .steps = 2048,
                                              .stats = 4096,
                                              .sites = 4096,
                                              .names = 16384,
                                              .name_bytes = 1 << 20};

// What is tried once where files may not be as long (ulimit -f).
constexpr SegmentLayout Quarter(const SegmentLayout& layout) {
  return {.ring_slots = layout.ring_slots / 4,
          .steps = layout.steps / 4,
          .stats = layout.stats / 4,
          .sites = layout.sites / 4,
          .names = layout.names / 4,
          .name_bytes = layout.name_bytes / 4 / 8 * 8};
}

// Offsets of the sections from the start of the file, each a multiple of 64; the header lies at 0.
struct SegmentMap {
  SegmentLayout layout;
  uint64_t live;
  uint64_t control;
  uint64_t ring;
  uint64_t steps;
  uint64_t telemetry;
  uint64_t trails;
  uint64_t stats;
  uint64_t first;
  uint64_t reach;
  uint64_t sites;
  uint64_t names;
  uint64_t file_bytes;
  wire::SectionEntry sections[wire::kSectionsMax];
  uint32_t section_count;
};

constexpr SegmentMap MapSegment(const SegmentLayout& layout) {
  SegmentMap map{};
  map.layout = layout;
  map.file_bytes = (sizeof(wire::SegmentHeader) + 63) / 64 * 64;
  const auto place = [&map](wire::SectionType type, uint32_t stride, uint64_t size) {
    const uint64_t offset = map.file_bytes;
    map.sections[map.section_count++] = {static_cast<uint32_t>(type), stride, offset, size};
    map.file_bytes += (size + 63) / 64 * 64;
    return offset;
  };
  using wire::SectionType;
  map.live = place(SectionType::kLive, 0, sizeof(wire::LiveBlock));
  map.control = place(SectionType::kControl, 0, sizeof(wire::ControlBlock));
  map.ring = place(SectionType::kFindings, sizeof(wire::Slot),
                   sizeof(wire::RingHeader) + uint64_t{layout.ring_slots} * sizeof(wire::Slot));
  map.steps = place(SectionType::kSteps, sizeof(wire::StepEntry),
                    wire::StepRingBytes<wire::StepEntry>(layout.steps));
  map.first = place(SectionType::kFirst, sizeof(wire::FirstFinding),
                    wire::kFirstFindingsMax * sizeof(wire::FirstFinding));
  map.reach = place(SectionType::kReach, sizeof(wire::FirstReach),
                    wire::kReachKinds * sizeof(wire::FirstReach));
  map.sites =
      place(SectionType::kSites, sizeof(wire::SiteEntry), wire::SiteTableBytes(layout.sites));
  map.names = place(SectionType::kNames, sizeof(wire::NameEntry),
                    wire::NameTableBytes(layout.names, layout.name_bytes));
  map.telemetry = place(SectionType::kTelemetry, sizeof(wire::TelemetryEntry),
                        wire::StepRingBytes<wire::TelemetryEntry>(layout.steps));
  map.trails = place(SectionType::kTrail, sizeof(wire::TrailEntry),
                     wire::StepRingBytes<wire::TrailEntry>(wire::kTrails));
  map.stats = place(SectionType::kStats, sizeof(wire::StatsEntry),
                    wire::StepRingBytes<wire::StatsEntry>(layout.stats));
  return map;
}

}  // namespace nanwatch
