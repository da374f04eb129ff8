// SPDX-License-Identifier: Apache-2.0
// The words of the verdict document for the numbers of the wire format. A number that this build
// does not know (a newer writer, a damaged record) becomes the word for unknown, never an error.
#pragma once

#include <cstdint>
#include <string>

#include "proto/wire/record.h"

namespace nanwatch {

[[nodiscard]] std::string ElementTypeName(uint32_t element_type);    // float32; "" unknown
[[nodiscard]] std::string PhaseName(uint32_t phase);                 // forward; "other" unknown
[[nodiscard]] std::string FindingClassName(uint32_t finding_class);  // produce; "propagate" unknown
[[nodiscard]] std::string ReachName(uint32_t reach);                 // loss; "activation" unknown
[[nodiscard]] std::string LevelName(uint32_t level);                 // full; "" unknown
[[nodiscard]] std::string UncheckedName(uint32_t reason);            // sparse; reason_15 unknown

// The reason for steps whose checks were off so that their cost could be measured. They are counted
// apart from wire::Unchecked.
inline constexpr char kUncheckedToMeasure[] = "measuring";

}  // namespace nanwatch
