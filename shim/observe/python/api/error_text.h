// SPDX-License-Identifier: Apache-2.0
// What the message of a Python exception is about.
#pragma once

#include <string_view>

namespace nanwatch {

// Whether it speaks of values that are not finite: "cannot convert float NaN to integer",
// "probability tensor contains either `inf`, `nan` or element < 0", "found invalid values",
// "loss is not finite". Goes by whole words, in any case; the first 64 KiB are read.
[[nodiscard]] bool SpeaksOfNonFinite(std::string_view message) noexcept;

}  // namespace nanwatch
