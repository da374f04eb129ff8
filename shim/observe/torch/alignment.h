// SPDX-License-Identifier: Apache-2.0
// Memory that does not stand on its elements' alignment, as what came by DLPack or from_blob need
// not. A processor reads it all the same; a GPU that reads such a part ends its context with an
// error (CUDA_ERROR_MISALIGNED_ADDRESS), and the job with it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/check/float_bits.h"
#include "shim/check/tensor_view.h"

namespace nanwatch {

// Whether the parts of such elements from `data` on are not on multiples of their size.
[[nodiscard]] inline bool IsMisaligned(const void* data, wire::ElementType type) noexcept {
  const size_t part_bytes = ElementBytes(type) / static_cast<size_t>(PartsOf(type));
  return (reinterpret_cast<uintptr_t>(data) & (part_bytes - 1)) != 0;  // a power of two
}

}  // namespace nanwatch
