// SPDX-License-Identifier: Apache-2.0
// The fleet's database in memory, by the rules of postgres.cc: a row is kept once, of a run the
// newest state, and findings come back in the order of their numbers. One thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/fleet/fleet_row.h"
#include "daemon/gather/fleet_reader.h"

namespace nanwatch {

class MemoryFleet {
 public:
  void Take(const FleetRow& row) {
    if (row.kind != FleetKind::kRun) {
      facts_.try_emplace({row.run, row.sequence, row.daemon}, row);
      return;
    }
    FleetRow& known = runs_[{row.daemon, row.run}];
    if (row.sequence > known.sequence) known = row;
  }

  [[nodiscard]] FleetRuns Runs() const {
    FleetRuns found;
    for (const auto& [key, row] : runs_) {
      FleetRun run = {.daemon = row.daemon,
                      .run = row.run,
                      .launch = row.launch,
                      .sequence = row.sequence,
                      .recorded_ns = row.recorded_ns};
      if (run.facts.ParseFromString(row.body)) found.runs.push_back(std::move(run));
    }
    return found;
  }
  [[nodiscard]] FleetFindings Findings() const {
    FleetFindings found;
    for (const auto& [key, row] : facts_) {
      if (row.kind == FleetKind::kFindings) found.bodies[row.run].push_back(row.body);
    }
    return found;
  }

 private:
  std::map<std::pair<std::string, std::string>, FleetRow> runs_;              // daemon, run
  std::map<std::tuple<std::string, uint64_t, std::string>, FleetRow> facts_;  // run, number, daemon
};

class MemoryReader final : public FleetReader {
 public:
  explicit MemoryReader(const MemoryFleet& fleet) : fleet_(fleet) {}
  Result<std::vector<FleetJob>> Jobs(const std::string&) override {
    return std::vector<FleetJob>();
  }
  Result<FleetRuns> RunsOfJob(const std::string&, const std::string&) override {
    FleetRuns runs = fleet_.Runs();
    if (runs.runs.empty()) return Status(ErrorKind::kNotFound, "no job of that id");
    return runs;
  }
  Result<FleetFindings> FindingsOf(const std::string&, const std::string&,
                                   const std::vector<FleetRun>&) override {
    return fleet_.Findings();
  }
  Result<FleetIncidents> Incidents(const std::string&, size_t) override { return FleetIncidents(); }
  Result<std::vector<ListedRun>> Runs(const std::string&) override {
    return std::vector<ListedRun>();
  }
  Result<FleetSteps> StepsOf(const std::string&, const std::string&,
                             const std::vector<FleetRun>&) override {
    return FleetSteps();
  }
  Result<OutboxLoss> LossOf(const std::vector<FleetRun>&) override { return OutboxLoss(); }

 private:
  const MemoryFleet& fleet_;
};

}  // namespace nanwatch
