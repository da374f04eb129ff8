// SPDX-License-Identifier: Apache-2.0
// All that is known of a run, put together from its tables: what correlate concludes from.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"
#include "daemon/store/sqlite.h"
#include "verdict.pb.h"

namespace nanwatch {

// To be called within a transaction, so that the tables are of one moment.

// How many records each run of the job may have in its facts, so that all together have at most
// kRecordsPerJobMax, or kRecordsPerRunJudgedLeast each.
[[nodiscard]] Result<uint64_t> RecordsPerRun(const Database& database, const std::string& job);

// At most so many records: the first four fifths of it and the newest. The rest counts as thinned.
[[nodiscard]] Result<RunFacts> ReadFacts(const Database& database, const std::string& run_id,
                                         uint64_t records_max);

// Leaves `training` as it is where nothing of the run, by its key, was watched yet.
Status ReadTraining(const Database& database, int64_t run, TrainingHistory& training);

}  // namespace nanwatch
