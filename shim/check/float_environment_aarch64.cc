// SPDX-License-Identifier: Apache-2.0
#include "shim/check/float_environment.h"

namespace nanwatch {

// Tiny results cost nothing extra here.
DefaultFloatEnvironment::DefaultFloatEnvironment(TinyResults) noexcept {
  asm volatile("mrs %0, fpcr" : "=r"(control_));
  asm volatile("mrs %0, fpsr" : "=r"(status_));
  asm volatile("msr fpcr, %0" ::"r"(uint64_t{0}));
}

DefaultFloatEnvironment::~DefaultFloatEnvironment() noexcept {
  asm volatile("msr fpcr, %0" ::"r"(control_));
  asm volatile("msr fpsr, %0" ::"r"(status_));
}

}  // namespace nanwatch
