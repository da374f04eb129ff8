// SPDX-License-Identifier: Apache-2.0
// The lines that `tail` prints: findings, warnings and incidents in the order of time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/finding_line.h"

namespace nanwatch {

struct TailEntry {
  uint64_t real_ns = 0;
  std::string text;                    // without a newline
  std::optional<FindingLine> finding;  // what `text` says, where that is a finding
};

// The last `lines_max` lines, oldest first, each ended by a newline. Findings of a run that only
// pass a bad value on share one line if nothing else comes between them, so that a storm does not
// hide what began it. `json`: the entries are objects, and that line gets `further` and
// `further_until_step`.
[[nodiscard]] std::string LastLines(std::vector<TailEntry> entries, size_t lines_max, bool json);

}  // namespace nanwatch
