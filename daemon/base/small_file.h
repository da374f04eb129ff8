// SPDX-License-Identifier: Apache-2.0
// Files read to their end: what a person has written for us, and what /proc says.
#pragma once

#include <cstddef>
#include <string>

#include "daemon/base/status.h"

namespace nanwatch {

// Its contents, of a larger file one byte more than `bytes_max`, so that the caller sees that it is.
// Waits for no pipe and no terminal. The status says what could not be done, without the path.
[[nodiscard]] Result<std::string> ReadSmallFile(const std::string& path, size_t bytes_max);

// A file of /proc; "" where it cannot be opened, what came before the failure where it cannot be
// read, as when the process ends meanwhile. (The buffer of a stream throws there.) Any thread.
[[nodiscard]] std::string TextOfProcFile(const std::string& path);

}  // namespace nanwatch
