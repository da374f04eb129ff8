// SPDX-License-Identifier: Apache-2.0
#include "shim/check/page_sample.h"

#include <algorithm>

#include "proto/wire/hash.h"
#include "shim/check/scan.h"

namespace nanwatch {
namespace {

constexpr uint32_t kProbes = 8;

// No element lies on two pages.
static_assert(kSamplePageBytes % ElementBytes(wire::ElementType::kComplex128) == 0);

}  // namespace

Magnitude LookAtPages(wire::ElementType type, const void* data, size_t count,
                      uint32_t turn) noexcept {
  Magnitude seen{0, Magnitude::Kind::kNone};
  const size_t element_bytes = ElementBytes(type);
  if (element_bytes == 0) return seen;
  const size_t page = kSamplePageBytes / element_bytes;  // in elements
  const auto* bytes = static_cast<const char*>(data);
  for (size_t first = turn % kSampleTurns * page; first < count; first += kSampleTurns * page) {
    const Magnitude here = Look(type, bytes + first * element_bytes, std::min(page, count - first));
    if (here.IsNonFinite()) return here;
    if (here.kind == Magnitude::Kind::kNone) continue;
    seen = {std::max(seen.bits, here.bits), Magnitude::Kind::kAtLeast};
  }
  return seen;
}

uint64_t BytesOfPages(uint64_t bytes, uint32_t turn) noexcept {
  constexpr uint64_t kRound = kSampleTurns * kSamplePageBytes;
  const uint64_t begin = turn % kSampleTurns * kSamplePageBytes;
  const uint64_t rest = bytes % kRound;
  return bytes / kRound * kSamplePageBytes +
         (rest > begin ? std::min(rest - begin, kSamplePageBytes) : 0);
}

uint32_t SampleTurns::Next(uint64_t bytes) noexcept {
  static_assert((kSizes & (kSizes - 1)) == 0);
  const auto home = static_cast<uint32_t>(bytes * wire::kGoldenRatio >> 58);
  Counted* counted = &counted_[home % kSizes];
  for (uint32_t i = 0; i < kProbes; ++i) {
    Counted& candidate = counted_[(home + i) % kSizes];
    if (candidate.bytes != bytes && candidate.bytes != 0) continue;
    counted = &candidate;
    break;
  }
  if (counted->bytes != bytes) *counted = {bytes, 0};
  const uint64_t at = counted->seen++;
  // Numbers in a row give numbers without a pattern, and 0 gives 0.
  return static_cast<uint32_t>((at + wire::Mixed(at / kSampleTurns)) % kSampleTurns);
}

}  // namespace nanwatch
