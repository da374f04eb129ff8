#include <xmmintrin.h>

#include "shim/check/float_environment.h"

namespace nanwatch {

// MXCSR holds modes and flags both. The x87 unit is not used by our code.
DefaultFloatEnvironment::DefaultFloatEnvironment() noexcept : control_(_mm_getcsr()), status_(0) {
  constexpr unsigned kAllMaskedNearest = 0x1f80;
  _mm_setcsr(kAllMaskedNearest);
}

DefaultFloatEnvironment::~DefaultFloatEnvironment() noexcept {
  _mm_setcsr(static_cast<unsigned>(control_));
}

}  // namespace nanwatch
