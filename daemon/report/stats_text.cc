// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/stats_text.h"

#include <vector>

#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

constexpr size_t kStatsNameColumnsMax = 40;

std::string Named(const std::string& name) {
  return Shorten(Printable(name), kStatsNameColumnsMax);
}

std::string Join(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

template <typename Names>
std::string Some(uint32_t count, const char* what, const Names& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(Named(name));
  if (count > shown.size()) shown.emplace_back("...");
  return std::to_string(count) + what + " (" + Join(shown, ", ") + ")";
}

}  // namespace

std::string LeftOutText(const SnapshotReport& snapshot) {
  std::vector<std::string> why;
  if (snapshot.on_gpu() > 0) why.push_back(std::to_string(snapshot.on_gpu()) + " on a GPU");
  if (snapshot.unreadable() > 0)
    why.push_back(std::to_string(snapshot.unreadable()) + " in another layout or type");
  if (snapshot.left_out() > 0)
    why.push_back(std::to_string(snapshot.left_out()) + " for which there was no room");
  if (why.empty()) return "";
  const uint64_t count = uint64_t{snapshot.on_gpu()} + snapshot.unreadable() + snapshot.left_out();
  return ", " + Grouped(count) + " left out (" + Join(why, ", ") + ")";
}

std::string StatsRow(const Verdict& verdict, int width_columns) {
  if (!verdict.has_stats()) return "";
  const StatsSummary& stats = verdict.stats();
  const SnapshotReport& snapshot = stats.snapshot();
  std::vector<std::string> parts;
  std::vector<std::string> moved;
  for (const ParameterReport& parameter : snapshot.parameters())
    moved.push_back(Named(parameter.name()) + " " + Brief(parameter.update_ratio()));
  if (!moved.empty())
    parts.push_back("largest updates relative to the weights: " + Join(moved, ", "));
  if (stats.zero_gradient() > 0)
    parts.push_back(
        Some(stats.zero_gradient(), " with an all-zero gradient", stats.zero_gradient_names()));
  if (stats.without_gradient() > 0)
    parts.push_back(
        Some(stats.without_gradient(), " without a gradient", stats.without_gradient_names()));
  return Row("updates",
             (snapshot.step() < 0 ? "" : "step " + std::to_string(snapshot.step()) + ", ") +
                 Printable(snapshot.optimizer()) + ", " + Counted(stats.parameters(), "parameter") +
                 LeftOutText(snapshot) + (parts.empty() ? "" : ": " + Join(parts, "; ")),
             width_columns);
}

}  // namespace nanwatch
