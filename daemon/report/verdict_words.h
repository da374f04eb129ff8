// SPDX-License-Identifier: Apache-2.0
// A verdict in a sentence, and what to do: what text and pages say first.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

struct VerdictWords {
  std::string word;      // ANOMALY, EXPECTED, CLEAN, UNKNOWN
  std::string sentence;  // "NaN reached the parameters at step 117", without a full stop
  std::string why;       // "" where there is nothing to add
  std::string evidence;  // for it; "" where there is none
  std::string remedy;    // "" for a clean run
};

// Text that Row() keeps on one line is glued: Unglued() where nothing is laid out.
[[nodiscard]] VerdictWords WordsOf(const Verdict& verdict);

}  // namespace nanwatch
