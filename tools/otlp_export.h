// SPDX-License-Identifier: Apache-2.0
// A job as OTLP: its runs' begins and ends, incidents and warnings as log records, figures of each
// step as gauges, totals as cumulative sums. A run is a resource. Pure.
//
// Requests are cut so that each fits where receivers limit them: a line of the Collector's file
// receiver has at most 1 MiB.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/report/page/run_series.h"
#include "otlp_logs.pb.h"
#include "otlp_metrics.pb.h"
#include "verdict.pb.h"

namespace nanwatch {

inline constexpr size_t kOtlpRecordsMax = 100;  // of a request
inline constexpr size_t kOtlpStepsMax = 500;
inline constexpr size_t kOtlpTextCellsMax = 1000;  // of one text from the job

struct OtlpExport {
  std::vector<otlp::LogsRequest> logs;
  std::vector<otlp::MetricsRequest> metrics;
};

struct OtlpAbout {
  std::string version;  // of nanwatch
  uint64_t now_ns = 0;  // since 1970 UTC
};

// `series`: of `facts`, in their order.
[[nodiscard]] OtlpExport OtlpOf(const std::vector<RunFacts>& facts, const Verdict& verdict,
                                const std::vector<RunSeries>& series, const OtlpAbout& about);

// OTLP/JSON, a request a line, as the Collector's file receiver (otlpjsonfile) reads it.
[[nodiscard]] std::string OtlpJsonLines(const OtlpExport& exported);

}  // namespace nanwatch
