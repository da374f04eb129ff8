// SPDX-License-Identifier: Apache-2.0
// Magnitudes as a scan of the tensor would give them.
#pragma once

#include "shim/check/magnitude.h"

namespace nanwatch {

inline Magnitude OfFloat(float value, Magnitude::Kind kind = Magnitude::Kind::kLargest) {
  return {__builtin_bit_cast(uint32_t, value), kind};
}
inline Magnitude OfDouble(double value) {
  return {__builtin_bit_cast(uint64_t, value), Magnitude::Kind::kLargest};
}

}  // namespace nanwatch
