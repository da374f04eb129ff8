// SPDX-License-Identifier: Apache-2.0
// What one read of a segment returned, decoded: names resolved, texts printable, nothing left that
// could harm a reader. A value type; the store commits it in one transaction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// How far a segment has been read. Absolute numbers, they never wrap.
struct SegmentCursor {
  uint64_t ring = 0;       // slot of the finding ring to be read next
  uint64_t steps = 0;      // entry of the step ring to be read next
  uint64_t holes = 0;      // ring slots passed over so far because their record was never completed
  uint64_t malformed = 0;  // records so far that were complete and made no sense
  uint64_t steps_lost = 0;  // step entries so far that were overwritten before they were read
  uint64_t stats = 0;       // entry of the ring of snapshots to be read next
  uint64_t stats_lost = 0;  // its entries so far of which no whole snapshot was read

  bool operator==(const SegmentCursor&) const = default;
};

struct RunBatch {
  std::string run_id;
  Run run;
  RunState state;
  std::vector<Site> sites;            // those that are new or counted on
  uint32_t sites_new = 0;             // how many of them are new
  std::vector<Record> records;        // from the ring and the first findings; tickets distinct
  std::vector<FirstReachFact> reach;  // those that are new
  std::vector<StepSummary> steps;
  std::vector<StatsSnapshot> stats;
  std::optional<TrainingHistory> training;  // after `steps` and `stats`; absent: as it was
  SegmentCursor cursor;                     // where to go on once this is committed
  bool more = false;  // there was more than one read takes: read again once this is acknowledged

  // Whether it holds anything that a person waits for, as opposed to counters that moved.
  [[nodiscard]] bool has_findings() const {
    return !records.empty() || !reach.empty() || sites_new > 0;
  }
};

// The run's id: its nonce as 16 hexadecimal digits.
[[nodiscard]] std::string RunId(uint64_t nonce);
[[nodiscard]] inline std::string RunId(const Run& run) { return RunId(run.nonce()); }

// The job a run belongs to: its job's name, or, for a process that was given none, the run's id.
[[nodiscard]] inline std::string JobOf(const Run& run) {
  return run.job().empty() ? RunId(run) : run.job();
}

// Adds what `batch` brought to `facts` (same run): sites and state replaced, records and reach
// added once, records kept in the order of their tickets, steps and snapshots kept as read.
void MergeInto(RunFacts& facts, const RunBatch& batch);

// The same for facts from the database and facts read from the segment by a tool: `newer` wins.
void MergeInto(RunFacts& facts, const RunFacts& newer);

}  // namespace nanwatch
