// SPDX-License-Identifier: Apache-2.0
// `report --stats` for people: the newest snapshot of each optimizer of each run, a line a
// parameter.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

[[nodiscard]] std::string StatsTables(const StatsReport& report);

}  // namespace nanwatch
