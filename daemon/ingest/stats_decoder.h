// SPDX-License-Identifier: Apache-2.0
// A snapshot of parameters and layers, already copied into private memory, to a message. Pure;
// numbers that make no sense are left out of it.
#pragma once

#include "daemon/ingest/name_cache.h"
#include "proto/wire/stats_ring.h"
#include "statistics.pb.h"

namespace nanwatch {

[[nodiscard]] StatsSnapshot DecodeStats(const wire::StatsCopy& copy, const NameCache& names);

}  // namespace nanwatch
