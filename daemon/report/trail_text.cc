// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/trail_text.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "daemon/explain/element_types.h"
#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

constexpr int kHistoryShownMax = 8;
// Share of the type's largest number. Below it the headroom is of no interest.
constexpr double kShareShownMin = 0.01;
// Activations of a healthy network are smaller, and grow less than that over the steps of a trail.
constexpr double kLarge = 100;
constexpr double kGrowth = 4;

std::string LargestText(const TrailOp& op) {
  std::string text = (op.at_least() ? "at least " : "") + Brief(op.largest());
  const std::optional<double> limit = LargestOf(op.dtype());
  const double share = limit ? op.largest() / *limit : 0;
  if (share >= kShareShownMin) {
    text += ", " + Brief(std::round(share * 100)) + " % of the largest " + op.dtype();
  }
  return text;
}

std::string OpText(const TrailOp& op) {
  std::string text = Printable(op.op());
  if (!op.layer().empty()) text += ", " + Shorten(Printable(op.layer()), kLayerColumnsMax);
  if (op.layer().empty() && op.phase() == "optimizer") text += ", optimizer";
  return text + ": " + LargestText(op);
}

// Ordinary numbers before an origin explain nothing and only push it down the page.
bool SomethingGrew(const Incident& incident, int first_op) {
  const auto is_large = [](const TrailOp& op) { return op.largest() >= kLarge; };
  if (std::any_of(incident.trail().begin() + first_op, incident.trail().end(), is_large)) {
    return true;
  }
  const auto& history = incident.history();
  return history.size() > 1 && history.begin()->largest() > 0 &&
         history.rbegin()->largest() >= kGrowth * history.begin()->largest();
}

}  // namespace

std::string TrailRows(const Incident& incident, int ops_max, int width_columns) {
  std::string rows;
  const int ops = incident.trail_size();
  const int first_op = std::max(0, ops - ops_max);
  if (!SomethingGrew(incident, first_op)) return rows;
  for (int i = first_op; i < ops; ++i) {
    const TrailOp& op = incident.trail(i);
    const std::string age =
        op.steps_before() > 0 ? " (" + Counted(op.steps_before(), "step") + " earlier)" : "";
    rows += Row(rows.empty() ? "before" : "", OpText(op) + age, width_columns);
  }
  std::string history;
  const int steps = incident.history_size();
  for (int i = std::max(0, steps - kHistoryShownMax); i < steps; ++i) {
    const TrailOp& op = incident.history(i);
    history += (history.empty() ? "" : ", ") + LargestText(op);
  }
  if (!history.empty()) {
    rows += Row("earlier", "this op's largest results in earlier steps: " + history, width_columns);
  }
  return rows;
}

}  // namespace nanwatch
