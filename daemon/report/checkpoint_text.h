// SPDX-License-Identifier: Apache-2.0
// The program's checkpoints in the words of the report.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// From which checkpoint training can go on, and which are bad. "" when none were vetted.
[[nodiscard]] std::string CheckpointRows(const Verdict& verdict, int width_columns);

}  // namespace nanwatch
