// SPDX-License-Identifier: Apache-2.0
// A buffer of NaN that is filled as the training goes: its rows move on by one, and what was bad in
// it is still bad. That has reached nothing.
#pragma once

#include <string>

#include "daemon/correlate/value_graph.h"

namespace nanwatch {

// Whether the value, which was written to this buffer, was only moved since it was read there, and
// nothing else that is bad was put beside it.
[[nodiscard]] bool IsMovedWithin(ValueGraph& values, const std::string& buffer, int node);

}  // namespace nanwatch
