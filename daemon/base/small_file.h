// SPDX-License-Identifier: Apache-2.0
// Reads what a person has written for us: a regular file of bounded size.
#pragma once

#include <cstddef>
#include <string>

#include "daemon/base/status.h"

namespace nanwatch {

// Its contents, of a larger file one byte more than `bytes_max`, so that the caller sees that it is.
// Waits for no pipe and no terminal. The status says what could not be done, without the path.
[[nodiscard]] Result<std::string> ReadSmallFile(const std::string& path, size_t bytes_max);

}  // namespace nanwatch
