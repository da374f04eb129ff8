// SPDX-License-Identifier: Apache-2.0
// Days as PostgreSQL writes them. Of postgres*.cc alone.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace nanwatch {

// "2026-11-27" of days since 1970.
inline std::string DayText(int64_t days) {
  const std::chrono::year_month_day day{std::chrono::sys_days(std::chrono::days(days))};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()),
                     static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()));
}

}  // namespace nanwatch
