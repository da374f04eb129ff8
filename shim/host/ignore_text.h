// SPDX-License-Identifier: Apache-2.0
// NANWATCH_IGNORE into the segment: the rules themselves, or, after '@', the name of the file that
// holds them. The file is read here and now, so that the verdict goes by the rules that the job was
// started with, whatever becomes of the file.
#pragma once

#include "proto/wire/ignore_section.h"
#include "shim/host/segment_layout.h"

namespace nanwatch {

// Appends the section to what MapSegment() laid out and gives its offset. Here and not there,
// because the observer, which is compiled against the map, has no business with it.
constexpr uint64_t AppendIgnoreSection(SegmentMap& map) {
  const uint64_t offset = map.file_bytes;
  map.sections[map.section_count++] = {static_cast<uint32_t>(wire::SectionType::kBlobs), 0, offset,
                                       sizeof(wire::IgnoreSection)};
  map.file_bytes += sizeof(wire::IgnoreSection);
  return offset;
}

// Whether the user gave any rules.
[[nodiscard]] bool HasIgnore() noexcept;

// `section` is zeroed memory. A name that cannot be read, or is no regular file, is kept in the
// place of its text.
void FillIgnore(wire::IgnoreSection& section) noexcept;

}  // namespace nanwatch
