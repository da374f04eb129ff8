// SPDX-License-Identifier: Apache-2.0
// What the daemon would see of a segment: readers over its sections.
#pragma once

#include <string>

#include "proto/wire/name_table.h"
#include "proto/wire/ring.h"
#include "proto/wire/site_table.h"
#include "proto/wire/step_ring.h"
#include "shim/host/segment_file.h"

namespace nanwatch {

inline uint64_t SectionBytes(const Segment& segment, wire::SectionType type) {
  return segment.header().sections[static_cast<uint32_t>(type) - 1].size;
}
inline wire::RingReader FindingsIn(const Segment& segment) {
  return *wire::RingReader::Open(segment.ring(),
                                 SectionBytes(segment, wire::SectionType::kFindings));
}
inline wire::StepReader Steps(const Segment& segment) {
  return *wire::StepReader::Open(segment.steps(), SectionBytes(segment, wire::SectionType::kSteps));
}
inline std::string NameOf(const Segment& segment, uint32_t id) {
  return wire::NameReader::Open(segment.names(), SectionBytes(segment, wire::SectionType::kNames))
      ->Get(id);
}
inline std::optional<wire::Site> SiteOf(const Segment& segment, uint32_t id) {
  return wire::SiteReader::Open(segment.sites(), SectionBytes(segment, wire::SectionType::kSites))
      ->Get(id);
}

// A value record without statistics, as an observer would fill it.
inline wire::ValueRecord ValueOf(uint32_t site, uint64_t ticket) {
  wire::ValueRecord record{};
  record.header.kind = static_cast<uint16_t>(wire::RecordKind::kValue);
  record.header.bytes = sizeof record;
  record.header.ticket = ticket;
  record.site = site;
  return record;
}

}  // namespace nanwatch
