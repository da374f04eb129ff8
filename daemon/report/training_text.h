// SPDX-License-Identifier: Apache-2.0
// The trainings of a notebook's kernel, or of another process, in the words of the report.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// " in training 2 (In[9])" of a notebook, " of the second training in this process" of another, for a
// finding; "" where there was one training only.
[[nodiscard]] std::string InTraining(const Verdict& verdict, const Finding& finding);

// The newest training of the run, where it is better off than the verdict says; null otherwise.
[[nodiscard]] const TrainingSummary* BetterTraining(const Verdict& verdict);

// "training 2 of 2 (In[9], 40 steps)".
[[nodiscard]] std::string TrainingText(const Verdict& verdict, const TrainingSummary& training);

// One row for each, the newest first; "" where there was one training only.
[[nodiscard]] std::string TrainingRows(const Verdict& verdict, int width_columns);

}  // namespace nanwatch
