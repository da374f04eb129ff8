// SPDX-License-Identifier: Apache-2.0
// The verdict as a person reads it: one screen of 24 lines and 100 columns, most important first.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

struct TextOptions {
  bool color = false;  // ANSI colours: only when the caller knows that a terminal reads it
  int width_columns = 100;
  bool live = false;             // the job still runs
  std::string source_path = {};  // of the file that the first origin's line is in; "" not known
};

// Ends with a newline. Says what began it, where it went, why, what to do, and how much was
// watched. For a clean verdict: what was watched and what was not. For a verdict without runs: why
// nothing is known.
[[nodiscard]] std::string TextReport(const Verdict& verdict, const TextOptions& options);

// What was watched and what was not, reason by reason, each with what it means.
[[nodiscard]] std::string CoverageReport(const Verdict& verdict);

}  // namespace nanwatch
