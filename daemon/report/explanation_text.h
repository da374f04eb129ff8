// SPDX-License-Identifier: Apache-2.0
// How one incident followed from the records, as a person reads it: a sentence a row.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// Ends with a newline. Each sentence names its record, op, layer and step itself.
[[nodiscard]] std::string ExplanationText(const Explanation& explanation, int width_columns);

}  // namespace nanwatch
