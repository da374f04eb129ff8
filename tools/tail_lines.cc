// SPDX-License-Identifier: Apache-2.0
#include "tools/tail_lines.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace nanwatch {
namespace {

// Findings with the same key share a line: all findings of a run that only pass a bad value on, and
// those of one site and class. "": never shares a line.
std::string KeyOf(const TailEntry& entry) {
  if (!entry.finding.has_value() || !entry.finding->kernels.empty()) return "";
  const FindingLine& line = *entry.finding;
  std::string key = line.run + " " + std::to_string(line.training);
  if (line.finding_class == "propagate") return key + " propagate";
  for (const std::string& part :
       {line.finding_class, line.phase, line.layer, line.op, line.param, line.source}) {
    key += "\n" + part;
  }
  return key;
}

// Findings from the first of a key to the last.
struct Repeated {
  size_t line = 0;  // of the first, in the lines that are kept
  uint64_t further = 0;
  int64_t last_step = -1;
};

void AddFurther(const Repeated& repeated, bool json, TailEntry& first) {
  if (repeated.further == 0) return;
  if (json) {
    auto object = nlohmann::ordered_json::parse(first.text);
    object["further"] = repeated.further;
    object["further_until_step"] = repeated.last_step;
    first.text = object.dump();
    return;
  }
  first.text +=
      "  (and " + std::to_string(repeated.further) +
      (first.finding->finding_class == "propagate" ? " more that passed it on" : " more here");
  if (repeated.last_step > first.finding->step)
    first.text += ", until step " + std::to_string(repeated.last_step);
  first.text += ")";
}

// One entry for each key, where it came first, between two warnings or incidents.
std::vector<TailEntry> SumUp(std::vector<TailEntry> entries, bool json) {
  std::vector<TailEntry> kept;
  std::map<std::string, Repeated> open;
  const auto close = [&] {
    for (const auto& [key, repeated] : open) AddFurther(repeated, json, kept[repeated.line]);
    open.clear();
  };
  for (TailEntry& entry : entries) {
    const std::string key = KeyOf(entry);
    if (key.empty()) {
      if (!entry.finding.has_value()) close();
      kept.push_back(std::move(entry));
      continue;
    }
    const auto [known, is_first] = open.try_emplace(key, Repeated{kept.size()});
    if (!is_first) ++known->second.further;
    known->second.last_step = std::max(known->second.last_step, entry.finding->step);
    if (is_first) kept.push_back(std::move(entry));
  }
  close();
  return kept;
}

}  // namespace

std::string LastLines(std::vector<TailEntry> entries, size_t lines_max, bool json) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TailEntry& a, const TailEntry& b) { return a.real_ns < b.real_ns; });
  entries = SumUp(std::move(entries), json);
  std::string text;
  for (size_t i = entries.size() - std::min(entries.size(), lines_max); i < entries.size(); ++i)
    text += entries[i].text + "\n";
  return text;
}

}  // namespace nanwatch
