// SPDX-License-Identifier: Apache-2.0
// The snapshots of parameters that a segment holds.
#pragma once

#include <optional>

#include "daemon/ingest/name_cache.h"
#include "daemon/ingest/read_limits.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/ingest/segment_file.h"
#include "statistics.pb.h"

namespace nanwatch {

// Those since `cursor.stats`, which goes on with them. `batch.more` as of ReadSteps.
void ReadStats(const SegmentFile& file, const NameCache& names, ReadBudget& budget,
               SegmentCursor& cursor, RunBatch& batch);

[[nodiscard]] std::optional<StatsSnapshot> ReadNewestStats(const SegmentFile& file,
                                                           const NameCache& names);

}  // namespace nanwatch
