// SPDX-License-Identifier: Apache-2.0
#include <xmmintrin.h>

#include "shim/check/float_environment.h"

namespace nanwatch {

// MXCSR holds modes and flags both. The x87 unit is not used by our code.
DefaultFloatEnvironment::DefaultFloatEnvironment(TinyResults tiny) noexcept
    : control_(_mm_getcsr()), status_(0) {
  constexpr unsigned kAllMaskedNearest = 0x1f80;
  constexpr unsigned kFlushToZero = 0x8000;
  _mm_setcsr(kAllMaskedNearest | (tiny == TinyResults::kMayBeZero ? kFlushToZero : 0));
}

DefaultFloatEnvironment::~DefaultFloatEnvironment() noexcept {
  _mm_setcsr(static_cast<unsigned>(control_));
}

}  // namespace nanwatch
