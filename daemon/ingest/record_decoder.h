// SPDX-License-Identifier: Apache-2.0
// From wire structs, already copied into private memory, to messages. Pure functions; the wire's
// numbers are brought into range: an enumerator that we do not know becomes 0, a count beyond its
// array makes the record malformed.
#pragma once

#include <cstddef>
#include <optional>

#include "daemon/ingest/name_cache.h"
#include "proto/wire/record.h"
#include "proto/wire/site_table.h"
#include "proto/wire/stats_ring.h"
#include "statistics.pb.h"

namespace nanwatch {

[[nodiscard]] Clocks DecodeClocks(const wire::Clocks& clocks);

// `record` has at least `bytes` bytes and is aligned to 8. Nothing when it makes no sense.
[[nodiscard]] std::optional<Record> DecodeRecord(const unsigned char* record, size_t bytes,
                                                 const NameCache& names);

// Numbers that make no sense are left out of it.
[[nodiscard]] Record DecodeTrail(const wire::TrailEntry& trail, const NameCache& names);

[[nodiscard]] Site DecodeSite(uint32_t id, const wire::Site& site, const NameCache& names);

}  // namespace nanwatch
