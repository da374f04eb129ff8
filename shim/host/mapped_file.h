// SPDX-License-Identifier: Apache-2.0
// The one door to Boost.Interprocess.
#pragma once

#include <cstdint>

namespace nanwatch {

// Maps the first `bytes` bytes of an open file for reading and writing, shared, for the life of the
// process. nullptr with errno where Boost would throw. Keeps no descriptor.
[[nodiscard]] unsigned char* MapFile(int fd, uint64_t bytes) noexcept;

}  // namespace nanwatch
