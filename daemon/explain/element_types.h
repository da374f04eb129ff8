// SPDX-License-Identifier: Apache-2.0
// What a pattern knows of the types of tensor elements, by the names of the verdict document.
#pragma once

#include <optional>
#include <string_view>

namespace nanwatch {

// The largest finite number; of complex types, that of each part. Nothing for a name that is not
// known.
[[nodiscard]] std::optional<double> LargestOf(std::string_view dtype);

}  // namespace nanwatch
