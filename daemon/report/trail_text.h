// SPDX-License-Identifier: Apache-2.0
// The ops before an origin, and what its own op made in the steps before, as a person reads them.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// Rows of a report, the newest last; "" when no trail was kept, or all in it are ordinary numbers
// that do not grow. At most `ops_max` ops.
[[nodiscard]] std::string TrailRows(const Incident& incident, int ops_max, int width_columns);

}  // namespace nanwatch
