// SPDX-License-Identifier: Apache-2.0
// What a tensor holds, found the slow and obvious way: element by element, index by index, from the
// written definition of each format. Shares no code with shim/check except the enumerators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/wire/record.h"
#include "shim/check/tensor_view.h"

namespace nanwatch::reference {

enum class Kind { kFinite, kNan, kPosInf, kNegInf };

struct Value {
  Kind kind = Kind::kFinite;
  double value = 0;  // of a finite one
};

// One part: a whole element, or the real or imaginary part of a complex one. `word` is its bits.
Value Decode(wire::ElementType type, uint64_t word);

int PartBytes(wire::ElementType type);
int Parts(wire::ElementType type);

// Bits of every sort of non-finite part that the format has: quiet, signalling and negative NaNs,
// NaNs with the smallest and the largest payload, both infinities.
std::vector<uint64_t> BadWords(wire::ElementType type);

// Bits of finite parts that a careless test takes for bad ones: the largest magnitudes, subnormals,
// zeros.
std::vector<uint64_t> DelicateFiniteWords(wire::ElementType type);

struct Expected {
  wire::TensorStats stats = {};
  uint8_t kinds = 0;
};
Expected Look(const TensorView& view);

std::string Name(wire::ElementType type);

inline constexpr wire::ElementType kAllTypes[] = {
    wire::ElementType::kFloat64,        wire::ElementType::kFloat32,
    wire::ElementType::kFloat16,        wire::ElementType::kBFloat16,
    wire::ElementType::kComplex128,     wire::ElementType::kComplex64,
    wire::ElementType::kComplex32,      wire::ElementType::kFloat8E5M2,
    wire::ElementType::kFloat8E4M3Fn,   wire::ElementType::kFloat8E5M2Fnuz,
    wire::ElementType::kFloat8E4M3Fnuz, wire::ElementType::kFloat8E8M0Fnu,
};

}  // namespace nanwatch::reference
