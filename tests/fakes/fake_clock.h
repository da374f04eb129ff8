// SPDX-License-Identifier: Apache-2.0
// A clock that stands still until it is told to go on. Not thread-safe.
#pragma once

#include <cstdint>

#include "daemon/base/clock.h"

namespace nanwatch {

class FakeClock final : public Clock {
 public:
  [[nodiscard]] uint64_t monotonic_ns() const override { return now_ns_; }
  [[nodiscard]] uint64_t real_ns() const override { return kEpochNs + now_ns_; }

  void Advance(uint64_t ns) { now_ns_ += ns; }
  void AdvanceMs(uint64_t ms) { Advance(ms * 1'000'000); }

 private:
  static constexpr uint64_t kEpochNs = 1'790'000'000'000'000'000;
  uint64_t now_ns_ = 1'000'000'000;
};

}  // namespace nanwatch
