// SPDX-License-Identifier: Apache-2.0
// The runs as metrics for Prometheus. Pure.
//
// The number of series is bounded, whatever jobs do: of kTableRunsMax runs each has at most 7 series
// of its own and one for each reason why tensors were not checked, and each job kMetricAnomaliesMax
// and kMetricWarningsMax. A layer is a label of anomalies alone, and one of at most
// kMetricAnomaliesMax values a job.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/serve/run_table.h"

namespace nanwatch {

inline constexpr size_t kMetricAnomaliesMax = 16;  // series of a job; the last has layer "(other)"
inline constexpr size_t kMetricWarningsMax = 32;
inline constexpr size_t kMetricReasonsMax = 32;
inline constexpr size_t kMetricLabelMax = 120;  // columns
inline constexpr size_t kMetricSeriesMax =
    kTableRunsMax * (8 + kMetricReasonsMax + kMetricAnomaliesMax + kMetricWarningsMax) + 1;

enum class MetricsFormat {
  kOpenMetrics,  // application/openmetrics-text; version=1.0.0
  kText,         // text/plain; version=0.0.4, also for node_exporter's textfile collector
};

[[nodiscard]] const char* MetricsType(MetricsFormat format);

// What an Accept header asks for.
[[nodiscard]] MetricsFormat FormatFor(std::string_view accept);

[[nodiscard]] std::string MetricsText(const std::vector<TableRun>& runs,
                                      const std::map<std::string, TableJob>& jobs,
                                      bool database_readable, MetricsFormat format);

}  // namespace nanwatch
