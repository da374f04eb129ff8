// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/clock.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TEST(ClockTest, WritesTimesInUtcWithMilliseconds) {
  EXPECT_EQ(FormatUtc(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(FormatUtc(1'790'000'000'123'999'999), "2026-09-21T14:13:20.123Z");
}

TEST(ClockTest, TheMonotonicClockNeverGoesBack) {
  const SystemClock clock;
  const uint64_t before = clock.monotonic_ns();
  EXPECT_GE(clock.monotonic_ns(), before);
}

}  // namespace
}  // namespace nanwatch
