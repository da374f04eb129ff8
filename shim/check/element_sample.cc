// SPDX-License-Identifier: Apache-2.0
#include "shim/check/element_sample.h"

#include <cstring>

namespace nanwatch {

size_t CopySample(const void* data, size_t count, size_t width, size_t elements_max,
                  unsigned char* to) noexcept {
  const auto* from = static_cast<const unsigned char*>(data);
  if (count <= elements_max) {
    std::memcpy(to, from, count * width);
    return count;
  }
  const size_t sampled = elements_max / kSampleRun * kSampleRun;
  for (size_t i = 0; i < sampled; i += kSampleRun) {
    const size_t place =
        SampledIndex(count, static_cast<uint32_t>(sampled), static_cast<uint32_t>(i));
    std::memcpy(to + i * width, from + place * width, kSampleRun * width);
  }
  return sampled;
}

}  // namespace nanwatch
