// SPDX-License-Identifier: Apache-2.0
// The text of warnings.json, compiled in.
#pragma once

#include <string_view>

namespace nanwatch {

extern const std::string_view kWarningsText;

}  // namespace nanwatch
