// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/page/heat_map.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "daemon/report/page/thinning.h"

namespace nanwatch {
namespace {

struct Reading {
  int64_t step = 0;
  double headroom = 0;
};

struct LayerReadings {
  std::string layer;
  std::vector<Reading> readings;
};

// Layers in the order in which they are first met: snapshots have that of the model.
class ReadingsByLayer {
 public:
  void Add(const std::string& layer, int64_t step, double headroom) {
    if (step < 0 || !(headroom >= 0)) return;
    const auto [found, is_new] = places_.try_emplace(layer, layers_.size());
    if (is_new) layers_.push_back({.layer = layer, .readings = {}});
    layers_[found->second].readings.push_back({step, headroom});
  }
  [[nodiscard]] std::vector<LayerReadings>& layers() { return layers_; }

 private:
  std::unordered_map<std::string, size_t> places_;
  std::vector<LayerReadings> layers_;
};

ReadingsByLayer Read(const StatsReport& stats, const RunSeries& series) {
  ReadingsByLayer all;
  for (const SnapshotReport& snapshot : stats.snapshots()) {
    if (snapshot.run() != series.run) continue;
    for (const LayerReport& layer : snapshot.layers()) {
      if (!layer.has_headroom()) continue;
      all.Add(layer.layer().empty() ? layer.root() : layer.layer(), snapshot.step(),
              layer.headroom());
    }
  }
  for (const StepPoint& point : series.points) {
    if (point.limit_share.has_value() && *point.limit_share > 0)
      all.Add(point.nearest_layer, point.step, 1 / *point.limit_share);
  }
  return all;
}

char CellOf(double headroom) {
  if (headroom <= 1) return kHeatLeast;
  const double level = 1 + std::floor(2 * std::log2(headroom));
  return static_cast<char>(kHeatLeast + std::min<double>(level, kHeatMost - kHeatLeast));
}

double Least(const LayerReadings& layer) {
  double least = layer.readings.front().headroom;
  for (const Reading& reading : layer.readings) least = std::min(least, reading.headroom);
  return least;
}

// Keeps those with the least headroom, in their order.
size_t KeepNearest(std::vector<LayerReadings>& layers, size_t rows_max) {
  if (layers.size() <= rows_max) return 0;
  std::vector<double> least;
  least.reserve(layers.size());
  for (const LayerReadings& layer : layers) least.push_back(Least(layer));
  std::vector<double> sorted = least;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(rows_max) - 1,
                   sorted.end());
  const double bound = sorted[rows_max - 1];
  std::vector<LayerReadings> kept;
  for (size_t i = 0; i < layers.size() && kept.size() < rows_max; ++i) {
    if (least[i] <= bound) kept.push_back(std::move(layers[i]));
  }
  const size_t left_out = layers.size() - kept.size();
  layers = std::move(kept);
  return left_out;
}

HeatRow RowOf(const LayerReadings& layer, const std::vector<int64_t>& steps, int64_t width) {
  HeatRow row = {.layer = layer.layer,
                 .least = Least(layer),
                 .least_step = -1,
                 .newest = 0,
                 .cells = std::string(steps.size(), kHeatUnknown)};
  int64_t newest_step = -1;
  for (const Reading& reading : layer.readings) {
    if (reading.headroom == row.least && row.least_step < 0) row.least_step = reading.step;
    if (reading.step >= newest_step) {
      newest_step = reading.step;
      row.newest = reading.headroom;
    }
    const auto column = std::lower_bound(
        steps.begin(), steps.end(), steps.front() + (reading.step - steps.front()) / width * width);
    char& cell = row.cells[static_cast<size_t>(column - steps.begin())];
    const char now = CellOf(reading.headroom);
    if (cell == kHeatUnknown || now < cell) cell = now;
  }
  return row;
}

}  // namespace

HeatMap HeatMapOf(const StatsReport& stats, const RunSeries& series, size_t columns_max,
                  size_t rows_max) {
  HeatMap map;
  ReadingsByLayer all = Read(stats, series);
  std::vector<LayerReadings>& layers = all.layers();
  if (layers.empty()) return map;
  map.rows_left_out = KeepNearest(layers, rows_max);
  std::vector<int64_t> steps;
  for (const LayerReadings& layer : layers) {
    for (const Reading& reading : layer.readings) steps.push_back(reading.step);
  }
  std::sort(steps.begin(), steps.end());
  const int64_t first = steps.front();
  const int64_t width = ColumnWidth(first, steps.back(), columns_max);
  map.steps_per_column = width;
  for (const int64_t step : steps) map.steps.push_back(first + (step - first) / width * width);
  map.steps.erase(std::unique(map.steps.begin(), map.steps.end()), map.steps.end());
  for (const LayerReadings& layer : layers) map.rows.push_back(RowOf(layer, map.steps, width));
  return map;
}

}  // namespace nanwatch
