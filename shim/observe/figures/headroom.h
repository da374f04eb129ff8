// SPDX-License-Identifier: Apache-2.0
// How near a layer's results come to the largest number of their type: in each step the nearest one
// is told, while it can still be mended.
//
// Results of forward ops inside modules, of the types in which training overflows (float16,
// bfloat16, float32, float64). Left out are float8, which is scaled to its limit on purpose, and
// what lies at the very limit, which is a mask of finfo.min.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "proto/wire/segment.h"
#include "shim/check/magnitude.h"

namespace nanwatch {

class ProcessSegment;
struct Layer;
struct OpTraits;

class Headroom {
 public:
  // `segment` outlives it.
  explicit Headroom(const ProcessSegment& segment) noexcept : segment_(segment) {}

  // Whether the magnitude is worth a call of Note. A comparison, for every op.
  [[nodiscard]] static bool IsNear(wire::ElementType type, Magnitude magnitude) noexcept {
    // A sum of squares is finite, so its root is far below the limit.
    return magnitude.kind == Magnitude::Kind::kLargest &&
           magnitude.bits >= kNearBits[static_cast<size_t>(type)];
  }
  // For what IsNear. Any thread.
  void Record(const OpTraits* op, const Layer* layer, wire::ElementType type,
              Magnitude magnitude) noexcept;
  // A step ends: the nearest since the one before, if there was any. Gives its share of its type's
  // largest number; 0: none.
  double Take(wire::TelemetryEntry* into) noexcept;

 private:
  // A 64th of the largest number, as a word of the type; never reached by other types.
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr std::array<uint64_t, wire::kElementTypeCount> kNearBits = {
      kNever,     uint64_t{0x7f8fffff} << 32,
      0x7c7fffff, 0x63ff,
      0x7c7f,     kNever,
      kNever,     kNever,
      kNever,     kNever,
      kNever,     kNever,
      kNever};

  const ProcessSegment& segment_;
  std::mutex mutex_;  // covers everything below
  double share_ = 0;  // of the type's largest number; 0: nothing was near
  double largest_ = 0;
  const OpTraits* op_ = nullptr;
  const Layer* layer_ = nullptr;
  wire::ElementType type_ = wire::ElementType::kNone;
};

}  // namespace nanwatch
