// SPDX-License-Identifier: Apache-2.0
// The steps of a segment, each with its telemetry if that was not overwritten yet.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/ingest/name_cache.h"
#include "daemon/ingest/read_limits.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/ingest/segment_file.h"
#include "facts.pb.h"

namespace nanwatch {

// Those since `cursor.steps`, which goes on with them. Sets `batch.more` when there are more than
// one lap or than the budget allows.
void ReadSteps(const SegmentFile& file, const NameCache& names, ReadBudget& budget,
               SegmentCursor& cursor, RunBatch& batch);

// At most so many, oldest first.
[[nodiscard]] std::vector<StepSummary> ReadLastSteps(const SegmentFile& file,
                                                     const NameCache& names, uint64_t steps_max);

}  // namespace nanwatch
