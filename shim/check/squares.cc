#include "shim/check/squares.h"

#include <cstring>

#include "shim/check/float_formats.h"
#include "shim/check/kernels.h"

namespace nanwatch {
namespace {

// Elements whose squares are added up in float before they go into the double: few enough that the
// error stays below 1e-5, and enough that the conversion costs nothing.
constexpr size_t kBlock = 2048;

// One by one, in double: the squares of finite elements are finite there.
template <typename Format>
double SumSlowly(const unsigned char* data, size_t count) noexcept {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    typename Format::Word word;
    std::memcpy(&word, data + i * sizeof word, sizeof word);
    const auto value = static_cast<double>(Format::One(word));
    sum += value * value;
  }
  return sum;
}

template <typename Format, size_t kVectorBytes>
[[gnu::always_inline]] inline double SumInBlocks(const unsigned char* data, size_t count) noexcept {
  using V = Vectors<kVectorBytes>;
  using Floats = typename V::Floats;
  constexpr size_t kWordBytes = sizeof(typename Format::Word);
  constexpr size_t kVectors = 8;  // a turn: twice as many as a multiply-add has cycles of latency
  constexpr size_t kTurn = kVectors * V::kLanes;
  static_assert(kBlock % kTurn == 0);
  double sum = 0;
  size_t at = 0;
  while (at + kTurn <= count) {
    const size_t begin = at;
    const size_t end = count - at < kBlock ? count : at + kBlock;
    Floats sums[kVectors] = {};
    for (; at + kTurn <= end; at += kTurn) {
      const unsigned char* from = data + at * kWordBytes;
#pragma GCC unroll 8
      for (size_t i = 0; i < kVectors; ++i) {
        Floats x;
        Format::template Load<V>(from + i * V::kLanes * kWordBytes, x);
        sums[i] += x * x;
      }
    }
    const Floats all =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    float parts[V::kLanes];
    std::memcpy(parts, &all, sizeof parts);
    double block = 0;
    for (const float part : parts) block += static_cast<double>(part);
    // Too large for float: once more.
    if (!__builtin_isfinite(block)) {
      block = SumSlowly<Format>(data + begin * kWordBytes, at - begin);
    }
    sum += block;
  }
  return sum + SumSlowly<Format>(data + at * kWordBytes, count - at);
}

template <typename Format>
double SumNarrow(const unsigned char* data, size_t count) noexcept {
  return SumInBlocks<Format, 16>(data, count);
}
#if defined(__x86_64__)
template <typename Format>
[[gnu::target("avx2,fma")]] double SumWide(const unsigned char* data, size_t count) noexcept {
  return SumInBlocks<Format, 32>(data, count);
}
#endif

// The same loop for what the scan runs on.
template <typename Format>
double Sum(const unsigned char* data, size_t count) noexcept {
#if defined(__x86_64__)
  if (std::strcmp(ChosenKernels().name, "scalar") != 0) return SumWide<Format>(data, count);
#endif
  return SumNarrow<Format>(data, count);
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
      squares->sum = Sum<Float16Magnitude>(bytes, count);
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
