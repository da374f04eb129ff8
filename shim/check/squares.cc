// SPDX-License-Identifier: Apache-2.0
#include "shim/check/squares.h"

#include <cstring>

#include "shim/check/float_environment.h"
#include "shim/check/float_formats.h"
#include "shim/check/kernels.h"
#include "shim/check/parallel.h"

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

double SumOfOne(wire::ElementType type, const unsigned char* data, size_t count) noexcept {
  switch (type) {
    case wire::ElementType::kFloat64:
      return SumDoubles(data, count);
    case wire::ElementType::kFloat32:
      return Sum<Float32>(data, count);
    case wire::ElementType::kBFloat16:
      return Sum<BFloat16>(data, count);
    default:
      return Sum<Float16Magnitude>(data, count);
  }
}

// Large memory in parts, whose sums are added in order: the same in however many threads.
struct SharedSum {
  static constexpr size_t kPartsMax = 256;
  wire::ElementType type;
  const unsigned char* data;
  size_t count;
  size_t part_count;  // elements of a part
  double sums[kPartsMax];
};

void SumParts(void* context, int64_t begin, int64_t end) {
  auto& shared = *static_cast<SharedSum*>(context);
  const DefaultFloatEnvironment environment{TinyResults::kMayBeZero};
  for (int64_t part = begin; part < end; ++part) {
    const size_t first = static_cast<size_t>(part) * shared.part_count;
    const size_t left = shared.count - first;
    shared.sums[part] = SumOfOne(shared.type, shared.data + first * ElementBytes(shared.type),
                                 left < shared.part_count ? left : shared.part_count);
  }
}

// Out of line for the sake of the stack.
[[gnu::noinline]] double SumOfLarge(wire::ElementType type, const unsigned char* data,
                                    size_t count) noexcept {
  const size_t block_count = kParallelBlockBytes / ElementBytes(type);
  const size_t blocks = (count + block_count - 1) / block_count;
  const size_t blocks_of_part = (blocks + SharedSum::kPartsMax - 1) / SharedSum::kPartsMax;
  SharedSum shared{type, data, count, blocks_of_part * block_count, {}};
  const auto parts = static_cast<int64_t>((blocks + blocks_of_part - 1) / blocks_of_part);
  if (const ParallelFor parallel_for = ChosenParallelFor()) {
    parallel_for(0, parts, kParallelGrainBlocks, SumParts, &shared);
  } else {
    SumParts(&shared, 0, parts);
  }
  double sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += shared.sums[part];
  return sum;
}

}  // namespace

bool SumOfSquares(wire::ElementType type, const void* data, size_t count,
                  Squares* squares) noexcept {
  if (type != wire::ElementType::kFloat64 && type != wire::ElementType::kFloat32 &&
      type != wire::ElementType::kBFloat16 && type != wire::ElementType::kFloat16) {
    return false;
  }
  const auto* bytes = static_cast<const unsigned char*>(data);
  const size_t width = ElementBytes(type);
  if (count * width >= kParallelBytesMin) {
    // Modes are each thread's own, and one that is started takes over its maker's for good.
    squares->sum = SumOfLarge(type, bytes, count);
  } else {
    const DefaultFloatEnvironment environment{TinyResults::kMayBeZero};
    squares->sum = SumOfOne(type, bytes, count);
  }
  squares->all_zero = squares->sum == 0 && (width == 8   ? AllZero<uint64_t>(bytes, count)
                                            : width == 4 ? AllZero<uint32_t>(bytes, count)
                                                         : AllZero<uint16_t>(bytes, count));
  return true;
}

}  // namespace nanwatch
