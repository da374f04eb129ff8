// SPDX-License-Identifier: Apache-2.0
// For callgrind: ten thousand checks of a tensor of 16 floats, inside one function by which it can
// be told to count (instructions.cmake).
#include <cstddef>
#include <cstdio>

#include "shim/check/scan.h"

namespace {

constexpr int kChecks = 10000;

}  // namespace

extern "C" [[gnu::noinline]] int CheckMany(const float* elements, size_t count) {
  int found = 0;
  for (int i = 0; i < kChecks; ++i) {
    found += nanwatch::HasNonFinite(nanwatch::wire::ElementType::kFloat32, elements, count);
  }
  return found;
}

int main() {
  float elements[16] = {};
  std::printf("%s\n", nanwatch::InitScan(nullptr));
  return CheckMany(elements, 16);
}
