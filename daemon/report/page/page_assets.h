// SPDX-License-Identifier: Apache-2.0
// The files beside this one as they are compiled in, and dygraphs.
#pragma once

#include <string_view>

namespace nanwatch {

extern const std::string_view kPageStyle;
extern const std::string_view kPageBody;
extern const std::string_view kPageScript;
extern const std::string_view kDygraphsScript;
extern const std::string_view kPageStartScript;
extern const std::string_view kRunListBody;
extern const std::string_view kRunListScript;

}  // namespace nanwatch
