// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/growth.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace nanwatch {
namespace {

using Place = std::pair<std::string, std::string>;
// By how many steps before the origin's, the oldest first.
using Levels = std::map<uint32_t, double, std::greater<>>;

bool IsExponential(const std::string& op) {
  return op.starts_with("aten::exp") || op.starts_with("aten::pow") ||
         op.starts_with("aten::sinh") || op.starts_with("aten::cosh");
}

void Collect(const google::protobuf::RepeatedPtrField<TrailOp>& ops,
             std::map<Place, Levels>& places) {
  for (const TrailOp& op : ops) {
    if (op.phase() != "forward" || IsExponential(op.op()) || !std::isfinite(op.largest())) continue;
    double& level = places[{op.op(), op.layer()}][op.steps_before()];
    level = std::max(level, op.largest());
  }
}

double LowerMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Results of a healthy network are of the order of 1: what is smaller is no measure of growth.
std::optional<Growth> GrowthOf(const std::vector<double>& values) {
  if (values.size() < 2) return std::nullopt;
  const std::vector<double> older(values.begin(),
                                  values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  Growth growth;
  growth.usual = LowerMedian(older);
  const double bound = kGrowthMin * std::max(growth.usual, 1.0);
  auto first = values.end();
  while (first != values.begin() && *(first - 1) >= bound) --first;
  if (first == values.end() || first == values.begin() || values.back() < *first) {
    return std::nullopt;
  }
  growth.levels.assign(first, values.end());
  return growth;
}

std::optional<Growth> GrowthOf(const Place& place, const Levels& levels) {
  std::vector<double> values;
  for (const auto& [steps_before, level] : levels) values.push_back(level);
  std::optional<Growth> growth = GrowthOf(values);
  if (!growth) return std::nullopt;
  growth->what = "largest result of " + place.first;
  growth->op = place.first;
  growth->layer = place.second;
  growth->in_last_step = levels.rbegin()->first == 0;
  return growth;
}

std::optional<Growth> GrowthOf(const char* what,
                               const google::protobuf::RepeatedField<double>& series) {
  std::optional<Growth> growth = GrowthOf(std::vector<double>(series.begin(), series.end()));
  if (growth) growth->what = what;
  return growth;
}

bool SaysMore(const Growth& a, const Growth& b) {
  if (a.levels.size() != b.levels.size()) return a.levels.size() > b.levels.size();
  return a.levels.back() / std::max(a.usual, 1.0) > b.levels.back() / std::max(b.usual, 1.0);
}

}  // namespace

std::optional<Growth> FindGrowth(const Incident& incident) {
  std::map<Place, Levels> places;
  Collect(incident.trail(), places);
  Collect(incident.history(), places);
  std::optional<Growth> most;
  for (const auto& [place, levels] : places) {
    std::optional<Growth> growth = GrowthOf(place, levels);
    if (growth && (!most || SaysMore(*growth, *most))) most = std::move(growth);
  }
  if (most && (!most->in_last_step || most->levels.size() > 1)) return most;
  if (std::optional<Growth> norm = GrowthOf("gradient norm", incident.gradient_norms_before()))
    return norm;
  if (std::optional<Growth> loss = GrowthOf("loss", incident.losses_before())) return loss;
  return most;
}

}  // namespace nanwatch
