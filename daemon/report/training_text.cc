// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/training_text.h"

#include <algorithm>
#include <array>

#include "daemon/report/incident_text.h"
#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

constexpr int kTrainingsShownMax = 6;

std::string CellsText(const TrainingSummary& training) {
  if (training.last_cell().empty()) return Printable(training.cell());
  return Printable(training.cell()) + " to " + Printable(training.last_cell());
}

bool IsOf(const TrainingSummary& training, const Finding& finding) {
  return finding.run() == training.run() && finding.training() == training.ordinal();
}

// "second", "12th".
std::string Ordinal(int number) {
  constexpr std::array<const char*, 6> kWords = {"", "first", "second", "third", "fourth", "fifth"};
  if (number < static_cast<int>(kWords.size())) return kWords[static_cast<size_t>(number)];
  const int last = number % 100 / 10 == 1 ? 0 : number % 10;
  return std::to_string(number) + (last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th");
}

std::string OutcomeOf(const Verdict& verdict, const TrainingSummary& training) {
  if (training.verdict() == "clean") return "clean: no non-finite value";
  if (training.verdict() == "expected") return "expected: non-finite values, but none did any harm";
  if (training.verdict() != "anomaly") return "unknown: not all of its steps were checked";
  const auto found = std::find_if(
      verdict.incidents().begin(), verdict.incidents().end(), [&](const Incident& incident) {
        return incident.severity() != "info" && IsOf(training, incident.origin());
      });
  return found == verdict.incidents().end() ? "anomaly" : "anomaly: " + Headline(*found);
}

}  // namespace

std::string InTraining(const Verdict& verdict, const Finding& finding) {
  for (const TrainingSummary& training : verdict.trainings()) {
    if (!IsOf(training, finding)) continue;
    const std::string cells = CellsText(training);
    return " in training " + std::to_string(training.ordinal()) +
           (cells.empty() ? "" : " (" + cells + ")");
  }
  if (finding.training() <= 0 || finding.step() < 0) return "";
  return " of the " + Ordinal(finding.training()) + " training in this process";
}

const TrainingSummary* BetterTraining(const Verdict& verdict) {
  const TrainingSummary* newest = nullptr;
  for (const TrainingSummary& training : verdict.trainings()) {
    if (training.run() == verdict.run().id()) newest = &training;
  }
  const bool better = newest != nullptr && verdict.verdict() == "anomaly" &&
                      newest->verdict() != "anomaly" && newest->steps() > 0;
  return better ? newest : nullptr;
}

std::string TrainingText(const Verdict& verdict, const TrainingSummary& training) {
  const std::string cells = CellsText(training);
  int32_t count = 0;
  for (const TrainingSummary& other : verdict.trainings()) {
    if (other.run() == training.run()) count = std::max(count, other.ordinal());
  }
  return "training " + std::to_string(training.ordinal()) + " of " + std::to_string(count) + " (" +
         (cells.empty() ? "" : cells + ", ") +
         Counted(static_cast<uint64_t>(std::max<int64_t>(0, training.steps())), "step") + ")";
}

std::string TrainingRows(const Verdict& verdict, int width_columns) {
  std::string rows;
  int shown = 0;
  for (int i = verdict.trainings_size(); i-- > 0 && shown < kTrainingsShownMax;) {
    const TrainingSummary& training = verdict.trainings(i);
    if (training.run() != verdict.run().id()) continue;
    rows +=
        Row(shown++ == 0 ? "trained" : "",
            TrainingText(verdict, training) + ": " + OutcomeOf(verdict, training), width_columns);
  }
  return rows;
}

}  // namespace nanwatch
