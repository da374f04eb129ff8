// SPDX-License-Identifier: Apache-2.0
// What a segment is called. noexcept, no allocation.
#pragma once

#include <cstdint>

namespace nanwatch {

// Random, and never 0; of the clock and the pid where the kernel has no random numbers yet.
[[nodiscard]] uint64_t Nonce() noexcept;

// While it is made, and then. Within the segment directory.
struct FileNames {
  char tmp[64];
  char seg[64];
};

[[nodiscard]] FileNames NamesFor(int32_t pid, uint64_t nonce) noexcept;

}  // namespace nanwatch
