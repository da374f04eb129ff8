// SPDX-License-Identifier: Apache-2.0
#include "shim/host/segment_rooms.h"

#include "proto/wire/name_table.h"
#include "proto/wire/site_table.h"

namespace nanwatch {

RoomPlan PlanOf(Room room, const SegmentMap& map) noexcept {
  const SegmentLayout& layout = map.layout;
  const uint64_t ring_step = 4 * kPage;
  const uint64_t names_at = map.names + sizeof(wire::NameTableHeader);
  const uint64_t entries_bytes = uint64_t{layout.names} * sizeof(wire::NameEntry);
  const auto entries_of = [](uint64_t section, uint64_t bytes, uint64_t first) {
    return RoomPlan{section + sizeof(wire::StepRingHeader), bytes - sizeof(wire::StepRingHeader),
                    first, 8 * kPage};
  };
  switch (room) {
    case Room::kRing:
      return {map.ring + sizeof(wire::RingHeader), uint64_t{layout.ring_slots} * sizeof(wire::Slot),
              ring_step, ring_step, true};
    case Room::kSteps:
      return entries_of(map.steps, wire::StepRingBytes<wire::StepEntry>(layout.steps), kPage);
    case Room::kTelemetry:
      return entries_of(map.telemetry, wire::StepRingBytes<wire::TelemetryEntry>(layout.steps),
                        kPage);
    case Room::kTrails:
      return entries_of(map.trails, wire::StepRingBytes<wire::TrailEntry>(wire::kTrails), 0);
    case Room::kStats:
      return entries_of(map.stats, wire::StepRingBytes<wire::StatsEntry>(layout.stats), 0);
    case Room::kSites:
      return {map.sites + sizeof(wire::SiteTableHeader),
              uint64_t{layout.sites} * sizeof(wire::SiteEntry),
              wire::kFirstFindingsMax * sizeof(wire::SiteEntry), 4 * kPage};
    case Room::kNames:
      return {names_at, entries_bytes, 2 * kPage, 2 * kPage};
    case Room::kNameText:
      return {names_at + entries_bytes, layout.name_bytes, 6 * kPage, 4 * kPage};
  }
  return {};
}

}  // namespace nanwatch
