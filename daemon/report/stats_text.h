// SPDX-License-Identifier: Apache-2.0
// Snapshots of a run's parameters, in the words of the report.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// A row: the largest updates, and the parameters without a gradient or with one of zeros. "" when
// there was no snapshot.
[[nodiscard]] std::string StatsRow(const Verdict& verdict, int width_columns);

// ", 3 left out (2 on a GPU, 1 of another layout or type)": why there are no more of them; "" when
// none is missing.
[[nodiscard]] std::string LeftOutText(const SnapshotReport& snapshot);

}  // namespace nanwatch
