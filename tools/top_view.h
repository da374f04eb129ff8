// SPDX-License-Identifier: Apache-2.0
// What `top` shows, as lines of text: a function of what was read and the size of the screen.
//
//   gpu01   8 runs, 2-6 shown, by rank   12:03:11 UTC          the head
//     RANK   STEP     LOSS FINDINGS VERDICT ...                as many columns as fit
//      0/8    117   0.0312        0 clean   ...                one row per run; '>' is the cursor
//   ANOMALY   4af3c868 rank 3  began at step 46  forward ...   incidents, then the newest findings
//   q quit   j/k move   sort by: r rank, o overhead, l loss    the keys
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nanwatch {

// One run; what is not known is absent.
struct TopRow {
  std::string run = {};
  std::string job = {};
  int32_t rank = 0;
  int32_t world_size = 1;
  int32_t pid = 0;
  std::string host = {};
  std::string program = {};
  std::string state = {};  // StateOf
  bool live = true;
  std::string level = {};  // in force
  std::optional<int64_t> step = {};
  std::optional<double> steps_per_second = {};
  std::optional<double> loss = {};
  std::optional<double> gradient_norm = {};
  std::optional<double> update_ratio = {};  // UpdateRatioOf
  std::optional<double> scale = {};
  std::optional<double> overhead_percent = {};
  std::array<double, 2> overhead_interval = {};  // low, high; where there is a figure
  uint64_t findings = 0;
  std::string verdict = {};         // so far; "" where there is none yet
  std::vector<double> losses = {};  // of the last steps, oldest first

  bool operator==(const TopRow&) const = default;
};

// A site of findings, and when it had the last one.
struct TopFinding {
  std::string run = {};
  int32_t rank = 0;
  int64_t step = -1;
  std::string phase = {};
  std::string layer = {};
  std::string op = {};
  std::string param = {};
  std::string finding_class = {};
  std::string source = {};
  uint64_t count = 0;

  bool operator==(const TopFinding&) const = default;
};

struct TopPicture {
  std::string host = {};
  std::string time = {};  // of day
  std::string note = {};  // what limits the rest: no daemon, files that cannot be read; or ""
  std::vector<TopRow> rows = {};
  std::vector<std::string> incidents = {};  // a line each, the most important first
  std::vector<TopFinding> findings = {};    // as they are to be shown
};

enum class TopOrder : uint8_t { kRank, kOverhead, kLoss };

struct TopFrame {
  size_t lines = 0;    // 0: as many as there are rows for, and no keys
  size_t columns = 0;  // 0: without limit
  bool color = false;
  bool unicode = false;
  TopOrder order = TopOrder::kRank;
  size_t chosen = 0;  // index of the chosen row; the rows around it are shown
};

// By job and rank; by overhead, the largest first; by loss, what is not finite first, then the
// largest. What is not known comes last.
void SortRows(std::vector<TopRow>& rows, TopOrder order);

// At most `frame.lines` lines of at most `frame.columns` cells, colours not counted, without
// newlines. Text from the job is made harmless here.
[[nodiscard]] std::vector<std::string> DrawTop(const TopPicture& picture, const TopFrame& frame);

// "rank 3  step 117  forward  encoder.0  aten::_softmax  inf_to_nan  12 times  train.py:41".
[[nodiscard]] std::string FindingAsText(const TopFinding& finding);

}  // namespace nanwatch
