// The processor's constant-rate counter, for shares of time: a few dozen cycles, no system call.
// Ticks have no unit; only ratios of them mean anything.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace nanwatch {

[[nodiscard]] inline uint64_t Ticks() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
#error "no tick counter is known for this processor"
#endif
}

}  // namespace nanwatch
