// SPDX-License-Identifier: Apache-2.0
// Gathers what `top` shows: live runs from their segments, verdicts from the database. Called once
// per refresh. In between it remembers what rates are computed from, and runs that have ended,
// which stay for a while.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/observations.h"
#include "tools/top_view.h"

namespace nanwatch {

// When a run had done so many steps.
struct StepMark {
  int64_t step = 0;
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  // The first in a notebook cell: the time before it belongs to no step.
  bool after_pause = false;

  bool operator==(const StepMark&) const = default;
};

// Steps per second over the last seconds before `now_ns`, from marks in the order of time; nothing
// from fewer than two. When steps stay away the rate sinks; in a notebook it is then gone
// (`may_pause`), because a cell that has ended is no slow step.
[[nodiscard]] std::optional<double> StepRate(const std::vector<StepMark>& marks, uint64_t now_ns,
                                             bool may_pause = false);

// How much of its weights a step changes: the median of update to weight over the matrices of a
// snapshot. Nothing where there are none.
[[nodiscard]] std::optional<double> UpdateRatioOf(const StatsSnapshot& snapshot);

// "clean", "expected", "anomaly"; "unknown" where nothing is found because nothing is checked now
// (not `watches`); "" while there are findings without an incident yet.
[[nodiscard]] std::string VerdictSoFar(const std::vector<Incident>& incidents, uint64_t findings,
                                       bool watches);

// What a row says of any run: its state alone, without step or verdict.
[[nodiscard]] TopRow RowOfRun(const SeenRun& run);

// Where `top` gets what it shows.
class TopSource {
 public:
  virtual ~TopSource() = default;
  // Rows in no particular order.
  [[nodiscard]] virtual TopPicture Take() = 0;
  // Why the last picture is not whole, a sentence.
  [[nodiscard]] virtual Status DatabaseStatus() = 0;
};

class TopLook final : public TopSource {
 public:
  TopLook();

  [[nodiscard]] TopPicture Take() override;
  // Why the database cannot be read; ok when it can, or when there is none yet.
  [[nodiscard]] Status DatabaseStatus() override { return observations_.DatabaseStatus(); }

 private:
  struct Remembered {
    TopRow row;
    std::vector<StepMark> marks;
    uint64_t ended_at_ns = 0;  // 0: lives
  };

  [[nodiscard]] TopRow RowOf(const LiveRun& run, uint64_t now_ns);
  void AddFindings(const LiveRun& run, TopPicture& picture) const;
  void AddVerdicts(TopPicture& picture);
  void AddEnded(TopPicture& picture, uint64_t now_ns);
  [[nodiscard]] std::string Note(bool has_rows) const;

  SystemClock clock_;
  Observations observations_;
  std::map<std::string, Remembered> runs_;  // by id
};

}  // namespace nanwatch
