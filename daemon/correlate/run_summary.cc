// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/run_summary.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string>

#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/ingest/run_batch.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

// RFC 3339 in UTC, to the second.
std::string Rfc3339(uint64_t real_ns) {
  const auto seconds = static_cast<time_t>(real_ns / 1'000'000'000ull);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "";
  std::array<char, 64> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text.data(), length);
}

// "cuda:0,cuda:1"; "cpu" where nothing was seen on a GPU.
std::string DevicesOf(uint32_t gpus) {
  std::string devices;
  for (int gpu = 0; gpu < 32; ++gpu) {
    if ((gpus >> gpu & 1) == 0) continue;
    devices += (devices.empty() ? "cuda:" : ",cuda:") + std::to_string(gpu);
  }
  return devices.empty() ? "cpu" : devices;
}

bool HasNoSite(const Record& record) {
  return (record.has_value() && record.value().site() == 0) ||
         (record.has_kill() && record.kill().site() == 0) ||
         (record.has_escape() && record.escape().site() == 0);
}

// A finding that got no site has its record, or the job counted that as dropped. Older jobs did
// not count it: what is neither a record nor counted elsewhere is lost.
uint64_t LostWithoutSite(const RunFacts& facts) {
  const RunState& state = facts.state();
  const auto records = static_cast<uint64_t>(
      std::count_if(facts.records().begin(), facts.records().end(), &HasNoSite));
  const uint64_t known = records + LostRecords(state) + state.records_thinned();
  return state.sites_dropped() - std::min(state.sites_dropped(), known);
}

}  // namespace

std::string CommandLine(const google::protobuf::RepeatedPtrField<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

uint64_t LostRecords(const RunState& state) {
  return state.records_dropped() + state.holes() + state.records_malformed();
}

RunInfo DescribeRun(const RunFacts& facts) {
  const Run& run = facts.run();
  const RunState& state = facts.state();
  RunInfo info;
  info.set_id(RunId(run));
  info.set_job(run.job());
  info.set_attempt(run.attempt());
  *info.mutable_command() = run.command();
  info.set_host(run.host());
  info.set_pid(run.pid());
  info.set_rank(run.rank());
  info.set_world_size(run.world_size());
  info.set_torch(run.torch_version());
  info.set_device(DevicesOf(state.gpus()));
  info.set_level(LevelName(facts.has_state() ? state.level() : run.level()));
  if (run.started_real_ns() != 0) info.set_started_at(Rfc3339(run.started_real_ns()));
  if (state.ended() && state.ended_real_ns() != 0)
    info.set_ended_at(Rfc3339(state.ended_real_ns()));
  if (state.has_exit_code()) info.set_exit_code(state.exit_code());
  if (state.has_signal()) info.set_signal(state.signal());
  info.set_program(run.program());
  info.set_python(run.python_version());
  info.set_directory(run.directory());
  info.set_late(run.late());
  return info;
}

// Before its first optimizer's step a program may write its parameters by hand (a perturbation): by
// then these count as its steps, and no longer once it has an optimizer.
uint64_t NoSteps(const RunState& state) {
  return state.clocks().optimizer_ranges() != 0 ? state.clocks().plain_updates() : 0;
}

// Takes so many off the level that has most.
void TakeSteps(uint64_t count, google::protobuf::Map<std::string, uint64_t>& by_level) {
  const auto most =
      std::max_element(by_level.begin(), by_level.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != by_level.end()) most->second -= std::min(most->second, count);
}

Coverage SumCoverage(const std::vector<RunFacts>& runs) {
  Coverage sum;
  for (const RunFacts& facts : runs) {
    const RunState& state = facts.state();
    const uint64_t none = NoSteps(state);
    const uint64_t seen = std::max(facts.steps(), none) - none;
    sum.set_steps(std::max(sum.steps(), std::max(seen, StepClock(facts).UpdatesSeen())));
    sum.set_ops_seen(sum.ops_seen() + state.ops_seen());
    sum.set_tensors_checked(sum.tensors_checked() + state.tensors_checked());
    sum.set_bytes_checked(sum.bytes_checked() + state.bytes_checked());
    sum.set_lost_events(sum.lost_events() + LostRecords(state) + LostWithoutSite(facts));
    sum.set_records_thinned(sum.records_thinned() + state.records_thinned());
    sum.set_step_summaries_lost(sum.step_summaries_lost() + state.steps_lost());
    for (int reason = 0; reason < state.unchecked_size(); ++reason) {
      if (state.unchecked(reason) == 0) continue;
      (*sum.mutable_unchecked())[UncheckedName(static_cast<uint32_t>(reason))] +=
          state.unchecked(reason);
    }
    for (int level = 0; level < state.steps_watched_size(); ++level) {
      if (state.steps_watched(level) == 0) continue;
      (*sum.mutable_steps_watched())[LevelName(static_cast<uint32_t>(level))] +=
          state.steps_watched(level);
    }
    if (none != 0) TakeSteps(none, *sum.mutable_steps_watched());
    if (state.steps_off() != 0) {
      (*sum.mutable_unchecked())[kUncheckedToMeasure] += state.steps_off();
    }
    // The slowest rank sets the pace of all.
    if (state.has_overhead_percent() &&
        (!sum.has_overhead_percent() || sum.overhead_percent() < state.overhead_percent())) {
      sum.set_overhead_percent(state.overhead_percent());
      sum.clear_overhead_interval();
      sum.add_overhead_interval(state.overhead_low());
      sum.add_overhead_interval(state.overhead_high());
    }
  }
  return sum;
}

}  // namespace nanwatch
