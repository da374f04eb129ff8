// SPDX-License-Identifier: Apache-2.0
// A row of numbers as a curve of one line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace nanwatch {

// The values scaled to eight heights, one character each, the last `columns` of them; '!' for a
// value that is not finite.
[[nodiscard]] std::string Sparkline(const std::vector<double>& values, size_t columns,
                                    bool unicode);

}  // namespace nanwatch
