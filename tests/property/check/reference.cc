// SPDX-License-Identifier: Apache-2.0
#include "tests/property/check/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

namespace nanwatch::reference {
namespace {

using enum wire::ElementType;

// exponent and mantissa in bits; `top` says what the highest exponent means.
struct Definition {
  const char* name;
  int part_bytes;
  int parts;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  enum { kIeee, kFn, kFnuz, kExponentOnly } top;
};

Definition DefinitionOf(wire::ElementType type) {
  static const std::map<wire::ElementType, Definition> kDefinitions = {
      {kFloat64, {"float64", 8, 1, 11, 52, 1023, Definition::kIeee}},
      {kFloat32, {"float32", 4, 1, 8, 23, 127, Definition::kIeee}},
      {kFloat16, {"float16", 2, 1, 5, 10, 15, Definition::kIeee}},
      {kBFloat16, {"bfloat16", 2, 1, 8, 7, 127, Definition::kIeee}},
      {kComplex128, {"complex128", 8, 2, 11, 52, 1023, Definition::kIeee}},
      {kComplex64, {"complex64", 4, 2, 8, 23, 127, Definition::kIeee}},
      {kComplex32, {"complex32", 2, 2, 5, 10, 15, Definition::kIeee}},
      {kFloat8E5M2, {"e5m2", 1, 1, 5, 2, 15, Definition::kIeee}},
      {kFloat8E4M3Fn, {"e4m3fn", 1, 1, 4, 3, 7, Definition::kFn}},
      {kFloat8E5M2Fnuz, {"e5m2fnuz", 1, 1, 5, 2, 16, Definition::kFnuz}},
      {kFloat8E4M3Fnuz, {"e4m3fnuz", 1, 1, 4, 3, 8, Definition::kFnuz}},
      {kFloat8E8M0Fnu, {"e8m0fnu", 1, 1, 8, 0, 127, Definition::kExponentOnly}}};
  const auto found = kDefinitions.find(type);
  return found != kDefinitions.end() ? found->second
                                     : Definition{"none", 0, 0, 0, 0, 0, Definition::kIeee};
}

uint64_t Ones(int bits) { return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

uint64_t WordAt(const char* at, int bytes) {
  uint64_t word = 0;
  std::memcpy(&word, at, static_cast<size_t>(bytes));
  return word;
}

// Calls visit(index, address) for every element in row-major order.
template <class Visit>
void ForEachElement(const TensorView& view, int64_t element_bytes, Visit visit) {
  std::vector<int64_t> index(static_cast<size_t>(view.ndim), 0);
  const int64_t numel =
      std::accumulate(view.sizes, view.sizes + view.ndim, int64_t{1}, std::multiplies<>());
  for (int64_t row = 0; row < numel; ++row) {
    int64_t offset = 0;
    int64_t rest = row;
    for (int d = view.ndim - 1; d >= 0; --d) {
      offset += rest % view.sizes[d] * view.strides[d];
      rest /= view.sizes[d];
    }
    visit(row, static_cast<const char*>(view.data) + offset * element_bytes);
  }
}

}  // namespace

Value Decode(wire::ElementType type, uint64_t word) {
  const Definition is = DefinitionOf(type);
  if (is.top == Definition::kExponentOnly) {
    if (word == 0xff) return {Kind::kNan};
    return {Kind::kFinite, std::ldexp(1.0, static_cast<int>(word) - is.bias)};
  }
  const uint64_t mantissa = word & Ones(is.mantissa_bits);
  const uint64_t exponent = (word >> is.mantissa_bits) & Ones(is.exponent_bits);
  const bool negative = ((word >> (is.mantissa_bits + is.exponent_bits)) & 1) != 0;
  if (is.top == Definition::kIeee && exponent == Ones(is.exponent_bits)) {
    return {mantissa != 0 ? Kind::kNan : negative ? Kind::kNegInf : Kind::kPosInf};
  }
  if (is.top == Definition::kFn && exponent == Ones(is.exponent_bits) &&
      mantissa == Ones(is.mantissa_bits)) {
    return {Kind::kNan};
  }
  if (is.top == Definition::kFnuz && negative && exponent == 0 && mantissa == 0)
    return {Kind::kNan};
  const double magnitude =
      exponent == 0 ? std::ldexp(static_cast<double>(mantissa), 1 - is.bias - is.mantissa_bits)
                    : std::ldexp(static_cast<double>(mantissa | (uint64_t{1} << is.mantissa_bits)),
                                 static_cast<int>(exponent) - is.bias - is.mantissa_bits);
  return {Kind::kFinite, negative ? -magnitude : magnitude};
}

int PartBytes(wire::ElementType type) { return DefinitionOf(type).part_bytes; }
int Parts(wire::ElementType type) { return DefinitionOf(type).parts; }
std::string Name(wire::ElementType type) { return DefinitionOf(type).name; }

std::vector<uint64_t> BadWords(wire::ElementType type) {
  const Definition is = DefinitionOf(type);
  if (is.top == Definition::kExponentOnly) return {0xff};
  if (is.top == Definition::kFn) return {0x7f, 0xff};
  if (is.top == Definition::kFnuz) return {0x80};
  const uint64_t inf = Ones(is.exponent_bits) << is.mantissa_bits;
  const uint64_t sign = uint64_t{1} << (is.exponent_bits + is.mantissa_bits);
  const uint64_t quiet = uint64_t{1} << (is.mantissa_bits - 1);
  return {inf | quiet, inf | 1,   inf | Ones(is.mantissa_bits), inf | quiet | sign, inf | 1 | sign,
          inf,         inf | sign};
}

std::vector<uint64_t> DelicateFiniteWords(wire::ElementType type) {
  const Definition is = DefinitionOf(type);
  if (is.top == Definition::kExponentOnly) return {0, 1, 0x7f, 0x80, 0xfe};
  const int sign_at = is.exponent_bits + is.mantissa_bits;
  const uint64_t sign = uint64_t{1} << sign_at;
  if (is.top == Definition::kFnuz) return {0, 1, 0x7f, 0x81, 0xff};
  if (is.top == Definition::kFn) return {0, 1, 0x7e, 0x78, 0x80, 0x81, 0xfe};
  const uint64_t largest = (Ones(is.exponent_bits) << is.mantissa_bits) - 1;
  const uint64_t subnormal = Ones(is.mantissa_bits);
  return {0, 1, subnormal, largest, sign, sign | 1, sign | subnormal, sign | largest};
}

Expected Look(const TensorView& view) {
  Expected expected;
  wire::TensorStats& stats = expected.stats;
  const int parts = Parts(view.type);
  const int part_bytes = PartBytes(view.type);
  stats.element_type = static_cast<uint8_t>(view.type);
  stats.ndim = static_cast<uint8_t>(view.ndim);
  stats.first_bad = -1;
  for (int d = 0; d < view.ndim && d < wire::kShapeDimsMax; ++d) stats.shape[d] = view.sizes[d];
  long double sum = 0;
  uint64_t finite_parts = 0;
  ForEachElement(view, int64_t{parts} * part_bytes, [&](int64_t row, const char* at) {
    ++stats.numel;
    bool nan = false, pos_inf = false, neg_inf = false;
    for (int part = 0; part < parts; ++part) {
      const Kind kind = Decode(view.type, WordAt(at + part * part_bytes, part_bytes)).kind;
      nan |= kind == Kind::kNan;
      pos_inf |= kind == Kind::kPosInf;
      neg_inf |= kind == Kind::kNegInf;
    }
    stats.nan += nan;
    stats.pos_inf += pos_inf;
    stats.neg_inf += neg_inf;
    if (nan || pos_inf || neg_inf) {
      if (stats.first_bad < 0) stats.first_bad = row;
      return;
    }
    for (int part = 0; part < parts; ++part) {
      const double value = Decode(view.type, WordAt(at + part * part_bytes, part_bytes)).value;
      stats.finite_min = finite_parts == 0 ? value : std::min(stats.finite_min, value);
      stats.finite_max = finite_parts == 0 ? value : std::max(stats.finite_max, value);
      sum += value;
      ++finite_parts;
    }
  });
  // A long double's exponent is wide enough for any sum of doubles, but its rounding may carry the
  // mean of many largest numbers beyond them.
  if (finite_parts != 0) {
    const long double mean = sum / static_cast<long double>(finite_parts);
    stats.finite_mean =
        static_cast<double>(std::clamp<long double>(mean, stats.finite_min, stats.finite_max));
  }
  expected.kinds = static_cast<uint8_t>((stats.nan ? wire::kHasNan : 0) |
                                        (stats.pos_inf ? wire::kHasPosInf : 0) |
                                        (stats.neg_inf ? wire::kHasNegInf : 0));
  return expected;
}

}  // namespace nanwatch::reference
