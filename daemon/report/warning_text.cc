// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/warning_text.h"

#include <algorithm>
#include <vector>

#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

// The report is one screen; --json has them all.
constexpr size_t kBeforeShownMax = 2;
constexpr size_t kAloneShownMax = 3;

std::string Processes(const Warning& warning) {
  if (warning.processes() < 2) return "";
  return " (first of " + std::to_string(warning.processes()) + " processes)";
}

std::string MoreRow(size_t count, size_t shown, int width) {
  if (count <= shown) return "";
  return Row("", "and " + Counted(count - shown, "more warning") + " (--json)", width);
}

// Those that say more than `info` first.
std::vector<const Warning*> ByWeight(const Verdict& verdict) {
  std::vector<const Warning*> warnings;
  for (const Warning& warning : verdict.warnings()) warnings.push_back(&warning);
  std::stable_sort(warnings.begin(), warnings.end(), [](const Warning* a, const Warning* b) {
    return (a->severity() != "info") > (b->severity() != "info");
  });
  return warnings;
}

}  // namespace

std::string RowsBeforeIncident(const Verdict& verdict, int width_columns) {
  std::vector<const Warning*> before;
  for (const Warning* warning : ByWeight(verdict)) {
    if (warning->has_steps_before()) before.push_back(warning);
  }
  std::string rows;
  for (size_t i = 0; i < std::min(before.size(), kBeforeShownMax); ++i) {
    const Warning& warning = *before[i];
    const auto steps = static_cast<uint64_t>(std::max<int64_t>(0, warning.steps_before()));
    std::string text =
        Counted(steps, "step") + " before: " + Printable(warning.evidence()) + Processes(warning);
    if (i == 0) text += "; " + Printable(warning.cause());
    rows += Row(i == 0 ? "before it" : "", text, width_columns);
  }
  return rows + MoreRow(before.size(), kBeforeShownMax, width_columns);
}

std::string WarningRows(const Verdict& verdict, int width_columns) {
  const std::vector<const Warning*> warnings = ByWeight(verdict);
  std::string rows;
  for (size_t i = 0; i < std::min(warnings.size(), kAloneShownMax); ++i) {
    const Warning& warning = *warnings[i];
    rows +=
        Row(warning.severity() == "info" ? "note" : "warning",
            Printable(warning.evidence()) + Processes(warning) + "; " + Printable(warning.cause()),
            width_columns);
    rows += Row("", "do: " + Printable(warning.fix()), width_columns);
  }
  return rows + MoreRow(warnings.size(), kAloneShownMax, width_columns);
}

}  // namespace nanwatch
