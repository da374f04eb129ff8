// SPDX-License-Identifier: Apache-2.0
// Time as the daemon and the tools see it; an interface, so that tests need not wait.
// Implementations are thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace nanwatch {

inline constexpr uint64_t kNsPerSecond = 1'000'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  // CLOCK_MONOTONIC, which processes of one boot share.
  [[nodiscard]] virtual uint64_t monotonic_ns() const = 0;
  // CLOCK_REALTIME: nanoseconds since 1970 UTC.
  [[nodiscard]] virtual uint64_t real_ns() const = 0;
};

class SystemClock final : public Clock {
 public:
  [[nodiscard]] uint64_t monotonic_ns() const override;
  [[nodiscard]] uint64_t real_ns() const override;
};

// RFC 3339 in UTC with milliseconds: "2026-11-21T10:39:06.123Z".
[[nodiscard]] std::string FormatUtc(uint64_t real_ns);

}  // namespace nanwatch
