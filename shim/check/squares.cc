#include "shim/check/squares.h"

#include <cstring>

namespace nanwatch {
namespace {

// Elements whose squares are added up in float before they go into the double: few enough that the
// error stays below 1e-5, and enough that the conversion costs nothing.
constexpr size_t kBlock = 1024;
constexpr size_t kLanes = 16;

struct Float32 {
  using Word = uint32_t;
  static float Load(Word word) noexcept { return __builtin_bit_cast(float, word); }
};
struct BFloat16 {
  using Word = uint16_t;
  static float Load(Word word) noexcept {
    return __builtin_bit_cast(float, static_cast<uint32_t>(word) << 16);
  }
};
struct Float16 {
  using Word = uint16_t;
  // Exponent and mantissa in float's places, then the difference of the biases by a multiplication,
  // which is right for subnormals too. The sign is squared away. Inf becomes 65536, NaN a number:
  // the caller has looked for those.
  static float Load(Word word) noexcept {
    return __builtin_bit_cast(float, static_cast<uint32_t>(word & 0x7FFF) << 13) * 0x1p112f;
  }
};

template <typename Format>
double Sum(const unsigned char* data, size_t count) noexcept {
  using Word = typename Format::Word;
  double sum = 0;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t end = at + kBlock < count ? at + kBlock : count;
    float lanes[kLanes] = {};
    size_t i = at;
    for (; i + kLanes <= end; i += kLanes) {
      Word words[kLanes];
      std::memcpy(words, data + i * sizeof(Word), sizeof words);
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const float value = Format::Load(words[lane]);
        lanes[lane] += value * value;
      }
    }
    double block = 0;
    for (const float lane : lanes) block += static_cast<double>(lane);
    for (; i < end; ++i) {
      Word word;
      std::memcpy(&word, data + i * sizeof word, sizeof word);
      const auto value = static_cast<double>(Format::Load(word));
      block += value * value;
    }
    if (!__builtin_isfinite(block)) {
      // The squares were too large for float; those of finite elements are not for double.
      block = 0;
      for (i = at; i < end; ++i) {
        Word word;
        std::memcpy(&word, data + i * sizeof word, sizeof word);
        const auto value = static_cast<double>(Format::Load(word));
        block += value * value;
      }
    }
    sum += block;
  }
  return sum;
}

double SumDoubles(const unsigned char* data, size_t count) noexcept {
  double lanes[4] = {};
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    double values[4];
    std::memcpy(values, data + i * sizeof(double), sizeof values);
    for (int lane = 0; lane < 4; ++lane) lanes[lane] += values[lane] * values[lane];
  }
  double sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
  for (; i < count; ++i) {
    double value;
    std::memcpy(&value, data + i * sizeof value, sizeof value);
    sum += value * value;
  }
  return sum;
}

// Every word zero but for its sign.
template <typename Word>
bool AllZero(const unsigned char* data, size_t count) noexcept {
  constexpr auto kMagnitude = static_cast<Word>(static_cast<Word>(~Word{0}) >> 1);
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, data + i * sizeof word, sizeof word);
    if ((word & kMagnitude) != 0) return false;
  }
  return true;
}

}  // namespace

bool SumOfSquares(wire::ElementType type, const void* data, size_t count,
                  Squares* squares) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  switch (type) {
    case wire::ElementType::kFloat64:
      squares->sum = SumDoubles(bytes, count);
      break;
    case wire::ElementType::kFloat32:
      squares->sum = Sum<Float32>(bytes, count);
      break;
    case wire::ElementType::kBFloat16:
      squares->sum = Sum<BFloat16>(bytes, count);
      break;
    case wire::ElementType::kFloat16:
      squares->sum = Sum<Float16>(bytes, count);
      break;
    default:
      return false;
  }
  const size_t width = ElementBytes(type);
  squares->all_zero = squares->sum == 0 && (width == 8   ? AllZero<uint64_t>(bytes, count)
                                            : width == 4 ? AllZero<uint32_t>(bytes, count)
                                                         : AllZero<uint16_t>(bytes, count));
  return true;
}

}  // namespace nanwatch
