// SPDX-License-Identifier: Apache-2.0
// The floating-point modes of the calling thread, set aside while we do arithmetic of our own.
//
// A job may have switched subnormals off, or floating-point traps on (feenableexcept); the first
// would falsify our figures, the second would end the job in our arithmetic. On leaving, modes and
// sticky exception flags are as they were. Costs some tens of cycles: not for each op.
#pragma once

#include <cstdint>

namespace nanwatch {

// Results too small for a normal number. kMayBeZero: zero where they would take the processor some
// hundred cycles each.
enum class TinyResults : uint8_t { kKept, kMayBeZero };

class DefaultFloatEnvironment {
 public:
  explicit DefaultFloatEnvironment(TinyResults tiny = TinyResults::kKept) noexcept;
  ~DefaultFloatEnvironment() noexcept;
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  uint64_t control_;  // the processor's control register
  // Its sticky flags, where they are a register of their own.
  [[maybe_unused]] uint64_t status_;
};

}  // namespace nanwatch
