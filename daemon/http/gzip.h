// SPDX-License-Identifier: Apache-2.0
// Adapter to zlib, for bodies that are sent.
#pragma once

#include <string>
#include <string_view>

namespace nanwatch {

// As of Content-Encoding: gzip. "" where there is no memory for it.
[[nodiscard]] std::string Gzip(std::string_view text);

}  // namespace nanwatch
