#include "daemon/explain/element_types.h"

#include <limits>

namespace nanwatch {
namespace {

struct ElementType {
  std::string_view name;
  double largest;
};

// (2 - 2^-fraction bits) * 2^largest exponent.
constexpr ElementType kElementTypes[] = {
    {"float64", std::numeric_limits<double>::max()},
    {"float32", std::numeric_limits<float>::max()},
    {"float16", 65504},
    {"bfloat16", 0x1.FEp127},
    {"complex128", std::numeric_limits<double>::max()},
    {"complex64", std::numeric_limits<float>::max()},
    {"complex32", 65504},
    {"float8_e5m2", 57344},
    {"float8_e4m3fn", 448},
    {"float8_e5m2fnuz", 57344},
    {"float8_e4m3fnuz", 240},
    {"float8_e8m0fnu", 0x1p127},
};

}  // namespace

std::optional<double> LargestOf(std::string_view dtype) {
  for (const ElementType& type : kElementTypes) {
    if (type.name == dtype) return type.largest;
  }
  return std::nullopt;
}

}  // namespace nanwatch
