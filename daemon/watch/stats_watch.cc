// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/stats_watch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/watch/training_alarms.h"
#include "proto/wire/record.h"

namespace nanwatch {
namespace {

// How long something must have been so: in snapshots, and in steps from the first of these.
struct Lasting {
  uint32_t snapshots;
  uint32_t steps;
};
constexpr Lasting kDeadLasts = {8, 20};
constexpr Lasting kMostUpdatesLast = {3, 10};
constexpr Lasting kOneUpdateLasts = {5, 20};
constexpr Lasting kFarApartLasts = {5, 20};

constexpr double kDeadShare = 0.95;
// Fewer elements than these may all be zero by chance.
constexpr uint64_t kUnitsMin = 8;
constexpr uint64_t kMatrixMin = 16;
constexpr double kMostUpdates = 0.1;
constexpr double kOneUpdate = 0.3;
// What was zero at first has grown by then.
constexpr uint32_t kSettledSteps = 30;
constexpr double kFarApart = 1e-6;
constexpr size_t kMatricesMin = 3;

// These add eps to a root of what they keep in the parameter's own type, and round the sum to it.
constexpr std::array<std::string_view, 7> kAdaptive = {"Adam",    "AdamW",  "NAdam",  "RAdam",
                                                       "Adagrad", "Adamax", "RMSprop"};

uint32_t StepsOf(const StatsSnapshot& snapshot) { return snapshot.clocks().optimizer_ranges(); }

// ---- streaks

bool HasLasted(const Streak& streak, const StatsSnapshot& snapshot, Lasting lasting) {
  return streak.snapshots() >= lasting.snapshots &&
         StepsOf(snapshot) - std::min(StepsOf(snapshot), streak.since()) >= lasting.steps;
}

void GoOn(const StatsSnapshot& snapshot, Streak& streak) {
  if (streak.snapshots() == 0) streak.set_since(StepsOf(snapshot));
  streak.set_snapshots(streak.snapshots() + 1);
}

using Streaks = google::protobuf::RepeatedPtrField<Streak>;

// Those of `names` go on or begin, all others are over.
void GoOnWith(const std::vector<std::string>& names, const StatsSnapshot& snapshot,
              Streaks& streaks) {
  Streaks next;
  for (const std::string& name : names) {
    if (next.size() == kStreaksMax) break;
    const auto known = std::find_if(streaks.begin(), streaks.end(),
                                    [&](const Streak& streak) { return streak.name() == name; });
    Streak& streak = *next.Add();
    if (known != streaks.end()) streak = *known;
    streak.set_name(name);
    GoOn(snapshot, streak);
  }
  streaks.Swap(&next);
}

const Streak* FirstThatLasted(const Streaks& streaks, const StatsSnapshot& snapshot,
                              Lasting lasting) {
  for (const Streak& streak : streaks) {
    if (HasLasted(streak, snapshot, lasting)) return &streak;
  }
  return nullptr;
}

// ---- alarms, of which OptimizerHistory has a field each

// The alarm to be filled in when `shows` begins; ends the open one when it is over.
TrainingAlarm* Settle(const char* id, const char* family, bool shows, bool is_open,
                      const StatsSnapshot& snapshot, OpenAlarm& open, TrainingHistory& history) {
  if (shows && !is_open) return Raise(id, family, MomentOf(snapshot), history, open);
  if (!shows && is_open) End(open, MomentOf(snapshot), history);
  return nullptr;
}

// ---- an eps that is zero

// The type's smallest number, and half of it: what is not larger is rounded to zero.
bool IsLost(double eps, uint32_t element_type) {
  switch (static_cast<wire::ElementType>(element_type)) {
    case wire::ElementType::kFloat16:
      return eps <= 0x1p-25;
    case wire::ElementType::kBFloat16:
      return eps <= 0x1p-134;
    case wire::ElementType::kFloat32:
      return eps <= 0x1p-150;
    default:
      return false;
  }
}

void WatchEpsilon(const StatsSnapshot& snapshot, OptimizerHistory& seen, TrainingHistory& history) {
  const bool adaptive =
      std::find(kAdaptive.begin(), kAdaptive.end(), snapshot.optimizer_class()) != kAdaptive.end();
  const ParameterStats* first = nullptr;
  int lost = 0;
  for (const ParameterStats& parameter : snapshot.parameters()) {
    // A zero was asked for; a fused kernel adds in float.
    if (!adaptive || parameter.fused() || !(parameter.eps() > 0)) continue;
    if (!IsLost(parameter.eps(), parameter.element_type())) continue;
    if (first == nullptr) first = &parameter;
    ++lost;
  }
  const bool was_open = seen.has_epsilon_lost();
  TrainingAlarm* alarm = Settle("epsilon-lost", "epsilon", lost > 0, was_open, snapshot,
                                *seen.mutable_epsilon_lost(), history);
  if (lost == 0) seen.clear_epsilon_lost();
  if (alarm == nullptr) return;
  alarm->set_param(first->name());
  auto& numbers = *alarm->mutable_numbers();
  numbers["eps"] = first->eps();
  numbers["parameters"] = lost;
}

// ---- dead layers

struct LayerGradients {
  bool all_dead = true;
  bool all_zero = true;
  bool has_units = false;  // a parameter with one element a unit: a bias, a scale
  int parameters = 0;
  double share_min = 1;
};

std::string LayerOf(const ParameterStats& parameter) {
  const std::string& name = parameter.name();
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot);
}

// Embeddings, and whatever else is looked up by row, get few gradients by design: what is mostly
// zero counts where it is one element a unit, or where there is nothing else at all.
bool IsDead(const LayerGradients& layer) {
  return layer.parameters > 0 && layer.all_dead && (layer.has_units || layer.all_zero);
}

void WatchDead(const StatsSnapshot& snapshot, OptimizerHistory& seen, TrainingHistory& history) {
  std::map<std::string, LayerGradients> layers;
  int gradients = 0;
  for (const ParameterStats& parameter : snapshot.parameters()) {
    if (!parameter.has_gradient_zero_share()) continue;
    ++gradients;
    LayerGradients& layer = layers[parameter.root() + '\n' + LayerOf(parameter)];
    const double share = parameter.gradient_zero_share();
    ++layer.parameters;
    layer.all_dead = layer.all_dead && share >= kDeadShare;
    layer.all_zero = layer.all_zero && share == 1;
    layer.has_units = layer.has_units || (parameter.dims() == 1 && parameter.numel() >= kUnitsMin);
    layer.share_min = std::min(layer.share_min, share);
  }
  std::vector<std::string> dead;
  int parameters_dead = 0;
  for (const auto& [name, layer] : layers) {
    if (!IsDead(layer)) continue;
    dead.push_back(name);
    parameters_dead += layer.parameters;
  }
  // Where most are, it is not of one layer, and warned of as `gradients-zero`.
  if (parameters_dead * 3 >= gradients * 2) dead.clear();
  GoOnWith(dead, snapshot, *seen.mutable_dead());
  const Streak* first = FirstThatLasted(seen.dead(), snapshot, kDeadLasts);
  const bool was_open = seen.has_dead_units();
  TrainingAlarm* alarm = Settle("dead-units", "dead", first != nullptr, was_open, snapshot,
                                *seen.mutable_dead_units(), history);
  if (first == nullptr) seen.clear_dead_units();
  if (alarm == nullptr) return;
  alarm->set_param(first->name().substr(first->name().find('\n') + 1));
  auto& numbers = *alarm->mutable_numbers();
  numbers["zero_percent"] = std::floor(layers[first->name()].share_min * 100);
  numbers["layers"] = static_cast<double>(
      std::count_if(seen.dead().begin(), seen.dead().end(),
                    [&](const Streak& streak) { return HasLasted(streak, snapshot, kDeadLasts); }));
  numbers["snapshots"] = first->snapshots();
}

// ---- updates

bool IsMatrix(const ParameterStats& parameter) {
  return parameter.dims() >= 2 && parameter.numel() >= kMatrixMin;
}

std::optional<double> UpdateRatio(const ParameterStats& parameter) {
  if (!IsMatrix(parameter) || !(parameter.weight_norm() > 0)) return std::nullopt;
  const double ratio = parameter.update_norm() / parameter.weight_norm();
  return std::isfinite(ratio) ? std::optional(ratio) : std::nullopt;
}

void WatchUpdates(const StatsSnapshot& snapshot, OptimizerHistory& seen, TrainingHistory& history) {
  std::vector<std::string> large;
  const ParameterStats* largest = nullptr;
  double ratio_max = 0;
  size_t matrices = 0;
  size_t many = 0;
  for (const ParameterStats& parameter : snapshot.parameters()) {
    const std::optional<double> ratio = UpdateRatio(parameter);
    if (!ratio) continue;
    ++matrices;
    if (*ratio > kMostUpdates) ++many;
    if (*ratio > kOneUpdate) large.push_back(parameter.root() + '\n' + parameter.name());
    if (*ratio <= ratio_max) continue;
    ratio_max = *ratio;
    largest = &parameter;
  }
  const bool settled = StepsOf(snapshot) >= kSettledSteps;
  if (!settled) large.clear();
  GoOnWith(large, snapshot, *seen.mutable_large_updates());
  if (settled && matrices > 0 && many * 2 >= matrices) {
    GoOn(snapshot, *seen.mutable_most_updates_large());
  } else {
    seen.clear_most_updates_large();
  }
  const bool most = HasLasted(seen.most_updates_large(), snapshot, kMostUpdatesLast);
  const Streak* one = FirstThatLasted(seen.large_updates(), snapshot, kOneUpdateLasts);
  const bool shows = most || one != nullptr;
  const bool was_open = seen.has_update_too_large();
  TrainingAlarm* alarm = Settle("update-too-large", "update", shows, was_open, snapshot,
                                *seen.mutable_update_too_large(), history);
  if (!shows) seen.clear_update_too_large();
  if (alarm == nullptr) return;
  alarm->set_param(largest->name());
  auto& numbers = *alarm->mutable_numbers();
  numbers["ratio"] = ratio_max;
  numbers["matrices"] = static_cast<double>(matrices);
  numbers["matrices_large"] = static_cast<double>(many);
  numbers["snapshots"] = most ? seen.most_updates_large().snapshots() : one->snapshots();
}

// ---- layers that the gradient does not reach

void WatchFarApart(const StatsSnapshot& snapshot, OptimizerHistory& seen,
                   TrainingHistory& history) {
  const ParameterStats* least = nullptr;
  double least_rms = 0;
  double largest_rms = 0;
  size_t matrices = 0;
  for (const ParameterStats& parameter : snapshot.parameters()) {
    if (!IsMatrix(parameter) || !parameter.has_gradient_norm()) continue;
    const double rms =
        parameter.gradient_norm() / std::sqrt(static_cast<double>(parameter.numel()));
    // What is zero throughout is dead, or was not asked for in this step.
    if (!(rms > 0) || !std::isfinite(rms)) continue;
    ++matrices;
    largest_rms = std::max(largest_rms, rms);
    if (least != nullptr && rms >= least_rms) continue;
    least = &parameter;
    least_rms = rms;
  }
  if (matrices >= kMatricesMin && least_rms < kFarApart * largest_rms) {
    GoOn(snapshot, *seen.mutable_far_apart());
  } else {
    seen.clear_far_apart();
  }
  const bool shows = HasLasted(seen.far_apart(), snapshot, kFarApartLasts);
  const bool was_open = seen.has_vanishing_layer();
  TrainingAlarm* alarm = Settle("gradient-vanishing-layer", "layer", shows, was_open, snapshot,
                                *seen.mutable_vanishing_layer(), history);
  if (!shows) seen.clear_vanishing_layer();
  if (alarm == nullptr) return;
  alarm->set_param(least->name());
  auto& numbers = *alarm->mutable_numbers();
  numbers["rms"] = least_rms;
  numbers["rms_largest"] = largest_rms;
  numbers["snapshots"] = seen.far_apart().snapshots();
}

// ---- for training_watch.h, which counts them

void NoteMissing(const StatsSnapshot& snapshot, OptimizerHistory& seen) {
  seen.clear_missing_name();
  for (const ParameterStats& parameter : snapshot.parameters()) {
    if (parameter.has_gradient()) continue;
    seen.set_missing_name(parameter.name());
    return;
  }
}

}  // namespace

void Watch(const StatsSnapshot& snapshot, TrainingHistory& history) {
  if (snapshot.number() < history.next_snapshot()) return;
  history.set_next_snapshot(snapshot.number() + 1);
  OptimizerHistory* seen = HistoryOfOptimizer(snapshot.optimizer(), history);
  if (seen == nullptr || snapshot.parameters().empty()) return;
  NoteMissing(snapshot, *seen);
  WatchEpsilon(snapshot, *seen, history);
  WatchDead(snapshot, *seen, history);
  WatchUpdates(snapshot, *seen, history);
  WatchFarApart(snapshot, *seen, history);
}

}  // namespace nanwatch
