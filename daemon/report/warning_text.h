// SPDX-License-Identifier: Apache-2.0
// Early warnings in the words of the report.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// Under what began it: "before it", the warnings that came before the first incident, how many
// steps, and what they mean. "" when there were none.
[[nodiscard]] std::string RowsBeforeIncident(const Verdict& verdict, int width_columns);

// All warnings, with cause and remedy, of a run without an anomaly.
[[nodiscard]] std::string WarningRows(const Verdict& verdict, int width_columns);

}  // namespace nanwatch
