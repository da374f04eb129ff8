// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/trainings.h"

#include <algorithm>
#include <string>

#include "daemon/ingest/run_batch.h"

namespace nanwatch {
namespace {

constexpr int kTrainingsMax = 32;

std::string CellText(uint32_t number) {
  return number == 0 ? "" : "In[" + std::to_string(number) + "]";
}

// The worst of what began in it.
std::string VerdictOf(const TrainingSummary& training, bool watched, const Verdict& verdict) {
  bool any = false;
  for (const Incident& incident : verdict.incidents()) {
    const Finding& origin = incident.origin();
    if (origin.run() != training.run() || origin.training() != training.ordinal()) continue;
    if (incident.severity() != "info") return "anomaly";
    any = true;
  }
  if (!watched) return "unknown";
  return any ? "expected" : "clean";
}

}  // namespace

void AddTrainings(const std::vector<Lineage>& runs, bool watched, Verdict& verdict) {
  for (const Lineage& run : runs) {
    const std::vector<TrainingSpan> trainings = run.clock().Trainings();
    if (trainings.size() < 2) continue;
    const size_t first = trainings.size() - std::min<size_t>(trainings.size(), kTrainingsMax);
    for (size_t i = first; i < trainings.size(); ++i) {
      const TrainingSpan& training = trainings[i];
      TrainingSummary& summary = *verdict.add_trainings();
      summary.set_ordinal(training.ordinal);
      summary.set_run(RunId(run.facts().run()));
      summary.set_steps(training.steps);
      summary.set_cell(CellText(training.first_cell));
      if (training.last_cell != training.first_cell)
        summary.set_last_cell(CellText(training.last_cell));
      summary.set_verdict(VerdictOf(summary, watched && training.unwatched == 0, verdict));
    }
  }
}

}  // namespace nanwatch
