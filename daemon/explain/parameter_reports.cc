// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/parameter_reports.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/explain/element_types.h"
#include "daemon/ingest/run_batch.h"

namespace nanwatch {
namespace {

constexpr int kNamesMax = 3;

ParameterReport ReportOf(const ParameterStats& from) {
  ParameterReport to;
  to.set_name(from.name());
  to.set_root(from.root());
  to.set_dtype(ElementTypeName(from.element_type()));
  to.set_numel(from.numel());
  to.set_gradient(!from.has_gradient() ? "none" : from.has_gradient_norm() ? "read" : "unread");
  if (from.has_gradient_norm()) {
    to.set_gradient_mean(from.gradient_mean());
    to.set_gradient_std(from.gradient_std());
    to.set_gradient_max_abs(from.gradient_max_abs());
    to.set_gradient_norm(from.gradient_norm());
    to.set_gradient_zero_share(from.gradient_zero_share());
  }
  if (!from.has_update_norm()) return to;
  to.set_update_norm(from.update_norm());
  to.set_weight_norm(from.weight_norm());
  to.set_sampled(from.sampled());
  if (from.weight_norm() != 0) to.set_update_ratio(from.update_norm() / from.weight_norm());
  return to;
}

LayerReport ReportOf(const LayerStats& from) {
  LayerReport to;
  to.set_layer(from.layer());
  to.set_root(from.root());
  to.set_dtype(ElementTypeName(from.element_type()));
  to.set_largest(from.largest());
  to.set_at_least(from.at_least());
  const std::optional<double> limit = LargestOf(to.dtype());
  if (limit && from.largest() > 0) to.set_headroom(*limit / from.largest());
  return to;
}

// All but its parameters and layers.
SnapshotReport HeadOf(const StatsSnapshot& from, const RunFacts& facts, const StepClock& clock) {
  SnapshotReport to;
  to.set_run(RunId(facts.run()));
  to.set_rank(facts.run().rank());
  const StepReading read = clock.Read(from.clocks());
  to.set_step(read.step);
  to.set_iteration(read.iteration);
  to.set_optimizer(from.optimizer_class());
  to.set_optimizer_index(from.optimizer());
  to.set_interval(from.interval());
  to.set_left_out(from.left_out());
  to.set_on_gpu(from.on_gpu());
  to.set_unreadable(from.unreadable());
  return to;
}

const StatsSnapshot* NewestOf(const RunFacts& facts) {
  const StatsSnapshot* newest = facts.has_stats_stored() ? &facts.stats_stored() : nullptr;
  for (const StatsSnapshot& snapshot : facts.stats_read()) {
    if (newest == nullptr || snapshot.number() > newest->number()) newest = &snapshot;
  }
  return newest;
}

template <typename Names>
void AddName(const ParameterStats& parameter, Names& names) {
  if (names.size() < kNamesMax) *names.Add() = parameter.name();
}

bool HasLargerUpdate(const ParameterReport& a, const ParameterReport& b) {
  const auto size = [](const ParameterReport& report) {
    return report.has_update_ratio() && !std::isnan(report.update_ratio()) ? report.update_ratio()
                                                                           : -1;
  };
  return size(a) > size(b);
}

StatsSummary Summarise(const StatsSnapshot& snapshot, const RunFacts& facts) {
  StatsSummary summary;
  *summary.mutable_snapshot() = HeadOf(snapshot, facts, StepClock(facts));
  std::vector<ParameterReport> moved;
  summary.set_parameters(static_cast<uint32_t>(snapshot.parameters_size()));
  for (const ParameterStats& parameter : snapshot.parameters()) {
    if (!parameter.has_gradient()) {
      summary.set_without_gradient(summary.without_gradient() + 1);
      AddName(parameter, *summary.mutable_without_gradient_names());
    } else if (parameter.gradient_zero_share() == 1) {
      summary.set_zero_gradient(summary.zero_gradient() + 1);
      AddName(parameter, *summary.mutable_zero_gradient_names());
    }
    ParameterReport report = ReportOf(parameter);
    if (report.has_update_ratio()) moved.push_back(std::move(report));
  }
  std::stable_sort(moved.begin(), moved.end(), HasLargerUpdate);
  moved.resize(std::min<size_t>(moved.size(), kNamesMax));
  for (ParameterReport& report : moved)
    *summary.mutable_snapshot()->add_parameters() = std::move(report);
  return summary;
}

}  // namespace

StatsReport ReportStats(const std::vector<RunFacts>& runs, const std::string& job) {
  StatsReport report;
  report.set_schema("nanwatch.stats/1");
  report.set_job(job);
  for (const RunFacts& facts : runs) {
    report.set_lost(report.lost() + facts.state().stats_lost());
    std::map<uint64_t, const StatsSnapshot*> by_number;
    for (const StatsSnapshot& snapshot : facts.stats_read())
      by_number[snapshot.number()] = &snapshot;
    const StepClock clock(facts);
    for (const auto& [number, snapshot] : by_number) {
      SnapshotReport& shown = *report.add_snapshots();
      shown = HeadOf(*snapshot, facts, clock);
      for (const ParameterStats& parameter : snapshot->parameters())
        *shown.add_parameters() = ReportOf(parameter);
      for (const LayerStats& layer : snapshot->layers()) *shown.add_layers() = ReportOf(layer);
    }
  }
  return report;
}

void AddStats(const std::vector<RunFacts>& runs, Verdict& verdict) {
  for (const RunFacts& facts : runs) {
    if (RunId(facts.run()) != verdict.run().id()) continue;
    if (const StatsSnapshot* newest = NewestOf(facts))
      *verdict.mutable_stats() = Summarise(*newest, facts);
  }
}

}  // namespace nanwatch
