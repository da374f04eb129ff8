// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/clock.h"

#include <fmt/format.h>
#include <ctime>

#include <array>

namespace nanwatch {
namespace {

uint64_t Read(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

uint64_t SystemClock::monotonic_ns() const { return Read(CLOCK_MONOTONIC); }
uint64_t SystemClock::real_ns() const { return Read(CLOCK_REALTIME); }

std::string FormatUtc(uint64_t real_ns) {
  const auto seconds = static_cast<time_t>(real_ns / kNsPerSecond);
  std::tm broken_down{};
  gmtime_r(&seconds, &broken_down);
  std::array<char, 40> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &broken_down);
  return fmt::format("{}.{:03}Z", date.data(), real_ns % kNsPerSecond / 1'000'000);
}

}  // namespace nanwatch
