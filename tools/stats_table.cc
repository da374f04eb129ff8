// SPDX-License-Identifier: Apache-2.0
#include "tools/stats_table.h"

#include <map>
#include <utility>
#include <vector>

#include "daemon/report/coverage_text.h"
#include "daemon/report/stats_text.h"
#include "daemon/report/text_layout.h"
#include "tools/table.h"

namespace nanwatch {
namespace {

constexpr size_t kNameColumnsMax = 44;

std::string Figure(bool known, double value) { return known ? Brief(value) : "-"; }

std::vector<std::string> RowOf(const ParameterReport& parameter) {
  const bool read = parameter.has_gradient_norm();
  return {Shorten(Printable(parameter.name()), kNameColumnsMax),
          Printable(parameter.dtype()),
          Grouped(parameter.numel()),
          read ? Brief(parameter.gradient_norm()) : Printable(parameter.gradient()),
          Figure(read, parameter.gradient_mean()),
          Figure(read, parameter.gradient_std()),
          Figure(read, parameter.gradient_max_abs()),
          Figure(read, parameter.gradient_zero_share()),
          Figure(parameter.has_update_ratio(), parameter.update_ratio())};
}

std::vector<std::string> RowOf(const LayerReport& layer) {
  const std::string& name = layer.layer().empty() ? layer.root() : layer.layer();
  return {Shorten(Printable(name), kNameColumnsMax), Printable(layer.dtype()),
          (layer.at_least() ? ">= " : "") + Brief(layer.largest()),
          Figure(layer.has_headroom(), layer.headroom())};
}

std::string LayerTable(const SnapshotReport& snapshot) {
  if (snapshot.layers().empty()) return "";
  const std::vector<Column> columns = {{"LAYER"}, {"TYPE"}, {"LARGEST", true}, {"HEADROOM", true}};
  std::vector<std::vector<std::string>> rows;
  for (const LayerReport& layer : snapshot.layers()) rows.push_back(RowOf(layer));
  return "\n" + FormatTable(columns, rows);
}

std::string HeadLine(const SnapshotReport& snapshot, int snapshots) {
  std::string line = "run " + ShortId(snapshot.run()) + ", rank " + std::to_string(snapshot.rank());
  line += snapshot.step() < 0 ? "" : ", step " + std::to_string(snapshot.step());
  line += ", " + Printable(snapshot.optimizer()) + ": " +
          Counted(static_cast<uint64_t>(snapshot.parameters_size()), "parameter") +
          LeftOutText(snapshot);
  return line + "; the newest of " + Counted(static_cast<uint64_t>(snapshots), "snapshot") +
         ", one every " + Counted(snapshot.interval(), "step") + "\n";
}

}  // namespace

std::string StatsTables(const StatsReport& report) {
  std::map<std::pair<std::string, uint32_t>, std::pair<const SnapshotReport*, int>> newest;
  for (const SnapshotReport& snapshot : report.snapshots()) {
    auto& [last, count] = newest[{snapshot.run(), snapshot.optimizer_index()}];
    last = &snapshot;
    ++count;
  }
  const std::vector<Column> columns = {
      {"PARAMETER"}, {"TYPE"},         {"ELEMENTS", true}, {"GRADNORM", true},     {"MEAN", true},
      {"STD", true}, {"MAXABS", true}, {"ZEROS", true},    {"UPDATE/WEIGHT", true}};
  std::string text;
  for (const auto& [key, found] : newest) {
    const auto& [snapshot, count] = found;
    std::vector<std::vector<std::string>> rows;
    for (const ParameterReport& parameter : snapshot->parameters())
      rows.push_back(RowOf(parameter));
    text += (text.empty() ? "" : "\n") + HeadLine(*snapshot, count) + FormatTable(columns, rows) +
            LayerTable(*snapshot);
  }
  if (report.lost() > 0)
    text += Grouped(report.lost()) + " entries were overwritten before they were read\n";
  return text;
}

}  // namespace nanwatch
