// SPDX-License-Identifier: Apache-2.0
// A run batch as rows: all that was read from a segment since the last one, its cursor among it.
// Rows that are there already are not written twice.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/store/outbox.h"
#include "daemon/store/retention.h"
#include "daemon/store/sqlite.h"

namespace nanwatch {

// One transaction for all. When it fails, what `retention` and `outbox` remember is no longer true.
// `outbox` may be null.
Status WriteBatches(const Database& database, Retention& retention, Outbox* outbox,
                    const std::vector<RunBatch>& batches, uint64_t now_real_ns);

// Whether the tables take a run of every kind of row and give it back. Leaves nothing behind.
[[nodiscard]] Status ProveTables(const Database& database);

}  // namespace nanwatch
