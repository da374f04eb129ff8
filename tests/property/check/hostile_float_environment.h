// SPDX-License-Identifier: Apache-2.0
// The floating-point modes of a job that makes it as hard as it can: subnormals off where the
// processor can (FTZ and DAZ), and a signal for every invalid operation, overflow and division by
// zero.
#pragma once

#include <cfenv>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace nanwatch {

class HostileFloatEnvironment {
 public:
  HostileFloatEnvironment() {
    std::fegetenv(&before_);
    std::feclearexcept(FE_ALL_EXCEPT);
#ifdef __SSE2__
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
    feenableexcept(FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO);
  }
  ~HostileFloatEnvironment() { std::fesetenv(&before_); }
  HostileFloatEnvironment(const HostileFloatEnvironment&) = delete;
  HostileFloatEnvironment& operator=(const HostileFloatEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace nanwatch
