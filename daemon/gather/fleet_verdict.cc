// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_verdict.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "daemon/explain/explain.h"
#include "daemon/ingest/run_batch.h"

namespace nanwatch {
namespace {

constexpr int kRanksNamed = 64;
constexpr int kReachMax = 64;  // of a run; there are fewer

struct Ranks {
  int32_t expected = 0;
  std::set<int32_t> heard;   // of them, ever
  std::set<int32_t> behind;  // of those
};

// A process beside the ranks, as torchrun, has no world or another one.
Ranks RanksOf(const std::vector<FleetRun>& runs) {
  Ranks ranks;
  for (const FleetRun& run : runs)
    ranks.expected = std::max({ranks.expected, run.facts.run().world_size(), 1});
  for (const FleetRun& run : runs) {
    const bool is_alone = ranks.expected == 1;
    const int32_t rank = is_alone ? 0 : run.facts.run().rank();
    if (!is_alone && run.facts.run().world_size() != ranks.expected) continue;
    if (rank < 0 || rank >= ranks.expected) continue;
    ranks.heard.insert(rank);
    if (!run.facts.state().ended() && run.heard_ago_s > kFleetSilentSeconds)
      ranks.behind.insert(rank);
  }
  return ranks;
}

// A world size may be any number: no longer than there are ranks.
void NameSilent(const Ranks& ranks, FleetVerdict& fleet) {
  for (int32_t rank = 0; rank < ranks.expected; ++rank) {
    if (fleet.ranks_silent_size() == kRanksNamed) return;
    if (!ranks.heard.contains(rank)) fleet.add_ranks_silent(rank);
  }
}

// ---- findings

// Records in a serialized RunFacts, up to where it makes no sense.
uint64_t CountRecords(const std::string& body) {
  using Wire = google::protobuf::internal::WireFormatLite;
  constexpr uint32_t kRecord =
      Wire::MakeTag(RunFacts::kRecordsFieldNumber, Wire::WIRETYPE_LENGTH_DELIMITED);
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(body.data()),
                                                static_cast<int>(body.size()));
  uint64_t count = 0;
  while (const uint32_t tag = stream.ReadTag()) {
    count += tag == kRecord ? 1 : 0;
    if (!Wire::SkipField(&stream, tag)) break;
  }
  return count;
}

uint64_t CountRecords(const std::vector<std::string>& bodies) {
  return std::accumulate(
      bodies.begin(), bodies.end(), uint64_t{0},
      [](uint64_t sum, const std::string& body) { return sum + CountRecords(body); });
}

// From the smallest on, each takes what it has or an equal share of what is left.
uint64_t RecordsPerRun(std::vector<uint64_t> counts, uint64_t records_max) {
  std::sort(counts.begin(), counts.end());
  uint64_t left = records_max;
  for (size_t i = 0; i < counts.size(); ++i) {
    const uint64_t share = left / (counts.size() - i);
    if (counts[i] > share) return std::max(kFleetRecordsPerRunLeast, share);
    left -= counts[i];
  }
  return records_max;
}

// Record by record, so that no more of them are ever in memory than are kept.
RunFacts FactsIn(const std::vector<std::string>& bodies, uint64_t count, uint64_t records_max) {
  const uint64_t kept = std::min(count, records_max);
  const uint64_t first = kept - (count > kept ? kept / 5 : 0);
  const uint64_t newest_from = count - (kept - first);
  RunFacts all;
  uint64_t at = 0;
  for (const std::string& body : bodies) {
    RunFacts facts;
    if (!facts.ParseFromString(body)) {
      at += CountRecords(body);
      continue;
    }
    for (Record& record : *facts.mutable_records()) {
      if (at < first || at >= newest_from) *all.add_records() = std::move(record);
      ++at;
    }
    facts.clear_records();
    all.MergeFrom(facts);
    if (all.reach_size() > kReachMax)
      all.mutable_reach()->DeleteSubrange(kReachMax, all.reach_size() - kReachMax);
  }
  all.clear_run();
  all.clear_state();
  all.clear_findings_sent();
  return all;
}

// ---- what is missing

// Why a launch is not judged as a whole, one word; "": it is.
std::string WhyIncomplete(const FleetVerdict& fleet, int32_t heard) {
  if (heard < fleet.ranks_expected()) return "ranks_not_heard";
  if (fleet.ranks_behind_count() > 0) return "ranks_behind";
  if (fleet.runs_left_out() > 0) return "runs_left_out";
  if (fleet.findings_missing() > 0) return "findings_missing";
  return fleet.launch_by_clocks() ? "launch_by_clocks" : "";
}

// What makes an origin other than exact: one of those that are not here may have begun it.
const char* UnseenWord(const std::string& why) {
  if (why == "findings_missing") return "findings";
  return why == "launch_by_clocks" ? "launch" : "ranks";
}

// ---- what comes first

// A chain that breaks off in a run of which rows are on their way says nothing about who began: the
// next row may lead on. It comes after what is as bad and has an origin.
void PutBrokenLast(const std::vector<FleetRun>& runs, Verdict& verdict) {
  std::set<std::string> partial;
  for (const FleetRun& run : runs) {
    if (run.findings_missing > 0 || run.findings_ahead > 0) partial.insert(RunId(run.facts.run()));
  }
  const auto is_broken = [&](const Incident& incident) {
    const Finding& origin = incident.origin();
    return origin.class_() == "propagate" && !origin.exact() && partial.contains(origin.run());
  };
  auto& incidents = *verdict.mutable_incidents();
  for (auto begin = incidents.begin(); begin != incidents.end();) {
    const auto end = std::find_if(begin, incidents.end(), [&](const Incident& incident) {
      return incident.severity() != begin->severity();
    });
    std::stable_partition(begin, end,
                          [&](const Incident& incident) { return !is_broken(incident); });
    begin = end;
  }
  for (const RunInfo& run : verdict.runs()) {
    if (!incidents.empty() && run.id() == incidents[0].origin().run()) *verdict.mutable_run() = run;
  }
}

}  // namespace

// All of a run at once: to merge one row after the other takes the square of their number.
void AddFindings(const FindingsByRun& findings, bool is_whole, std::vector<FleetRun>& runs,
                 uint64_t records_max) {
  std::map<std::string, uint64_t> counts;
  for (const FleetRun& run : runs) {
    const auto found = findings.find(run.run);
    if (found != findings.end()) counts[run.run] = CountRecords(found->second);
  }
  std::vector<uint64_t> all;
  all.reserve(counts.size());
  for (const auto& [run, count] : counts) all.push_back(count);
  const uint64_t each = RecordsPerRun(std::move(all), records_max);
  for (FleetRun& run : runs) {
    RunState& state = *run.facts.mutable_state();
    if (!is_whole) state.set_records_dropped(state.records_dropped() + 1);
    const auto found = findings.find(run.run);
    const uint64_t rows = found == findings.end() ? 0 : found->second.size();
    const uint64_t sent = run.facts.findings_sent();
    run.findings_missing = sent - std::min(sent, rows);
    run.findings_ahead = rows - std::min(sent, rows);
    if (rows == 0) continue;
    const uint64_t count = counts[run.run];
    state.set_records_thinned(state.records_thinned() + count - std::min(count, each));
    RunFacts facts;
    MergeInto(facts, FactsIn(found->second, count, each));
    MergeInto(facts, run.facts);
    run.facts = std::move(facts);
  }
}

FleetVerdict JudgeFleet(const std::vector<FleetRun>& runs, const FleetGaps& gaps) {
  std::vector<RunFacts> facts;
  facts.reserve(runs.size());
  for (const FleetRun& run : runs) facts.push_back(run.facts);
  FleetVerdict fleet;
  *fleet.mutable_verdict() = Diagnose(facts);
  PutBrokenLast(runs, *fleet.mutable_verdict());
  const Ranks ranks = RanksOf(runs);
  fleet.set_ranks_expected(ranks.expected);
  const auto heard = static_cast<int32_t>(ranks.heard.size());
  const auto behind = static_cast<int32_t>(ranks.behind.size());
  fleet.set_ranks_heard(heard - behind);
  fleet.set_ranks_behind_count(behind);
  for (const int32_t rank : ranks.behind) {
    if (fleet.ranks_behind_size() < kRanksNamed) fleet.add_ranks_behind(rank);
  }
  NameSilent(ranks, fleet);
  for (const FleetRun& run : runs)
    fleet.set_findings_missing(fleet.findings_missing() + run.findings_missing);
  fleet.set_runs_left_out(gaps.runs_left_out);
  fleet.set_launch_by_clocks(gaps.launch_by_clocks);
  const std::string why = WhyIncomplete(fleet, heard);
  if (why.empty()) return fleet;
  Verdict& verdict = *fleet.mutable_verdict();
  for (Incident& incident : *verdict.mutable_incidents()) {
    Finding& origin = *incident.mutable_origin();
    if (origin.exact()) origin.add_unseen(UnseenWord(why));
    origin.set_exact(false);
  }
  if (verdict.verdict() == "clean" || verdict.verdict() == "expected") {
    verdict.set_verdict("unknown");
    verdict.set_unknown_because(why);
  }
  return fleet;
}

}  // namespace nanwatch
