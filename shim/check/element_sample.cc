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
  const size_t runs = elements_max / kSampleRun;
  const size_t part = count / runs;  // at least kSampleRun
  const size_t places = part - kSampleRun + 1;
  for (size_t i = 0; i < runs; ++i) {
    // Multiples of the golden ratio: spread evenly, and in step with no row length.
    const size_t place = (i * 0x9e3779b97f4a7c15u >> 32) % places;
    std::memcpy(to, from + (i * part + place) * width, kSampleRun * width);
    to += kSampleRun * width;
  }
  return runs * kSampleRun;
}

}  // namespace nanwatch
