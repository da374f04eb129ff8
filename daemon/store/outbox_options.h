// SPDX-License-Identifier: Apache-2.0
// How an outbox (outbox.h) is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "verdict.pb.h"

namespace nanwatch {

inline constexpr uint64_t kOutboxBytesMax = uint64_t{256} << 20;
// Records of one run, as many as the database keeps (store.h). What comes later is counted as lost.
inline constexpr uint64_t kOutboxRecordsPerRunMax = 20'000;
inline constexpr uint64_t kOutboxRowsMax = 200'000;

// How long rows are kept that were acknowledged, while there is room: a database that was restored
// from yesterday's backup lacks them.
inline constexpr uint64_t kOutboxKeptNs = uint64_t{2} * 86'400 * 1'000'000'000;

struct OutboxOptions {
  uint64_t bytes_max = kOutboxBytesMax;
  uint64_t rows_max = kOutboxRowsMax;
  uint64_t kept_ns = kOutboxKeptNs;
  // As LaunchOfProcess of daemon/ingest; asked once for each run. Null: no launch is known.
  std::function<std::string(const Run&)> launch_of = {};
  // Gets a sentence when the outbox is switched off because its tables are damaged.
  std::function<void(const std::string&)> on_damage = {};
};

}  // namespace nanwatch
