// SPDX-License-Identifier: Apache-2.0
// Everything that a page about a job shows, as one JSON document (nanwatch.page/1). It is made of
// words and numbers that are ready to be shown: page.js draws, and concludes nothing.
//
// Each text that came from the job is printable (no control characters, no marks that turn the
// direction of text) and at most kPageTextMax columns long. Pure, safe from any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/report/page/run_series.h"
#include "verdict.pb.h"

namespace nanwatch {

inline constexpr size_t kPageTextMax = 240;
inline constexpr size_t kPageColumnsMax = 1'000;  // of a series
inline constexpr size_t kPageHeatColumnsMax = 300;
inline constexpr size_t kPageHeatRowsMax = 200;
inline constexpr size_t kPageStripColumnsMax = 500;
inline constexpr size_t kPageRanksMax = 256;
inline constexpr size_t kPageParametersMax = 2'000;  // rows of a table, layers likewise
inline constexpr size_t kPageMarksMax = 60;

// The user's own line and some around it, as they stand in its file now.
struct SourceLines {
  std::string path;
  int first = 1;   // number of the first line
  int marked = 1;  // number of the line that the origin names
  std::vector<std::string> lines;
};

struct PageFacts {
  Verdict verdict;
  StatsReport stats;
  std::vector<RunSeries> series;  // of each process of the job
  std::optional<SourceLines> source = {};
  std::string job;
  std::string made_at;  // RFC 3339, UTC
  std::string version;  // of this program
  bool live = false;    // a process of the job runs
};

[[nodiscard]] nlohmann::ordered_json PageDocument(const PageFacts& facts);

}  // namespace nanwatch
