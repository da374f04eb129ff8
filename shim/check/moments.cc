// SPDX-License-Identifier: Apache-2.0
#include "shim/check/moments.h"

#include <cmath>
#include <cstring>

#include "shim/check/float_formats.h"
#include "shim/check/kernels.h"

namespace nanwatch {
namespace {

// Zeros are counted in lanes of an element's width, which overflow later than a block ends.
constexpr size_t kBlock = 4096;
constexpr size_t kLanes = 4;
constexpr size_t kTurn = 4 * kLanes;
static_assert(kBlock % kTurn == 0);

// Four elements as doubles. Without AVX each is two registers, which GCC sees to.
using Narrow = Vectors<kLanes * sizeof(float)>;
using Doubles [[gnu::vector_size(kLanes * sizeof(double))]] = double;
using Longs [[gnu::vector_size(kLanes * sizeof(int64_t))]] = int64_t;

template <typename Format>
[[gnu::always_inline]] inline void LoadDoubles(const unsigned char* from, Doubles& to) noexcept {
  typename Narrow::Floats floats;
  Format::template Load<Narrow>(from, floats);
  to = __builtin_convertvector(floats, Doubles);
}

struct Float64 {
  using Word = uint64_t;
  static double One(Word word) noexcept { return __builtin_bit_cast(double, word); }
};
template <>
[[gnu::always_inline]] inline void LoadDoubles<Float64>(const unsigned char* from,
                                                        Doubles& to) noexcept {
  std::memcpy(&to, from, sizeof to);
}

template <typename Format>
[[gnu::always_inline]] inline double OneAt(const unsigned char* data, size_t at) noexcept {
  typename Format::Word word;
  std::memcpy(&word, data + at * sizeof word, sizeof word);
  return static_cast<double>(Format::One(word));
}

[[gnu::always_inline]] inline double SumOf(const Doubles& lanes) noexcept {
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// By their bits: the job may have set its processor to treat subnormals as zero.
template <typename Word>
[[gnu::always_inline]] inline uint64_t CountZeros(const unsigned char* data,
                                                  size_t count) noexcept {
  constexpr auto kMagnitude = static_cast<Word>(static_cast<Word>(~Word{0}) >> 1);
  Word zeros = 0;
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, data + i * sizeof word, sizeof word);
    zeros = static_cast<Word>(zeros + ((word & kMagnitude) == 0));
  }
  return zeros;
}

template <typename Format>
[[gnu::always_inline]] inline void AddUp(const unsigned char* data, size_t count,
                                         Moments* moments) noexcept {
  constexpr size_t kWordBytes = sizeof(typename Format::Word);
  Doubles sum[4] = {}, squares[4] = {}, largest[4] = {};
  size_t at = 0;
  for (; at + kTurn <= count; at += kTurn) {
    for (size_t i = 0; i < 4; ++i) {
      Doubles x;
      LoadDoubles<Format>(data + (at + i * kLanes) * kWordBytes, x);
      sum[i] += x;
      squares[i] += x * x;
      const Doubles magnitude = (Doubles)((Longs)x & INT64_MAX);
      largest[i] = magnitude > largest[i] ? magnitude : largest[i];
    }
  }
  moments->sum = SumOf((sum[0] + sum[1]) + (sum[2] + sum[3]));
  moments->squares_sum = SumOf((squares[0] + squares[1]) + (squares[2] + squares[3]));
  for (const Doubles& lanes : largest) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      moments->max_abs = lanes[lane] > moments->max_abs ? lanes[lane] : moments->max_abs;
    }
  }
  for (; at < count; ++at) {
    const double x = OneAt<Format>(data, at);
    moments->sum += x;
    moments->squares_sum += x * x;
    moments->max_abs = std::fabs(x) > moments->max_abs ? std::fabs(x) : moments->max_abs;
  }
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t left = count - done;
    moments->zeros +=
        CountZeros<typename Format::Word>(data + done * kWordBytes, left < kBlock ? left : kBlock);
  }
}

template <typename Format>
[[gnu::always_inline]] inline void AddUpChange(const unsigned char* before,
                                               const unsigned char* after, size_t count,
                                               Change* change) noexcept {
  constexpr size_t kWordBytes = sizeof(typename Format::Word);
  Doubles before_squares = {}, change_squares = {};
  size_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    Doubles from, to;
    LoadDoubles<Format>(before + at * kWordBytes, from);
    LoadDoubles<Format>(after + at * kWordBytes, to);
    before_squares += from * from;
    change_squares += (to - from) * (to - from);
  }
  change->before_squares = SumOf(before_squares);
  change->change_squares = SumOf(change_squares);
  for (; at < count; ++at) {
    const double from = OneAt<Format>(before, at);
    const double added = OneAt<Format>(after, at) - from;
    change->before_squares += from * from;
    change->change_squares += added * added;
  }
}

// Each loop twice: for what every processor has, and for what the scan runs on.
template <typename Format>
void MomentsNarrow(const unsigned char* data, size_t count, Moments* moments) noexcept {
  AddUp<Format>(data, count, moments);
}
template <typename Format>
void ChangeNarrow(const unsigned char* before, const unsigned char* after, size_t count,
                  Change* change) noexcept {
  AddUpChange<Format>(before, after, count, change);
}
#if defined(__x86_64__)
template <typename Format>
[[gnu::target("avx2,fma")]] void MomentsWide(const unsigned char* data, size_t count,
                                             Moments* moments) noexcept {
  AddUp<Format>(data, count, moments);
}
template <typename Format>
[[gnu::target("avx2,fma")]] void ChangeWide(const unsigned char* before, const unsigned char* after,
                                            size_t count, Change* change) noexcept {
  AddUpChange<Format>(before, after, count, change);
}
bool IsWide() noexcept { return std::strcmp(ChosenKernels().name, "scalar") != 0; }
#endif

template <typename Format>
void MomentsIn(const unsigned char* data, size_t count, Moments* moments) noexcept {
#if defined(__x86_64__)
  if (IsWide()) return MomentsWide<Format>(data, count, moments);
#endif
  MomentsNarrow<Format>(data, count, moments);
}

template <typename Format>
void ChangeIn(const unsigned char* before, const unsigned char* after, size_t count,
              Change* change) noexcept {
#if defined(__x86_64__)
  if (IsWide()) return ChangeWide<Format>(before, after, count, change);
#endif
  ChangeNarrow<Format>(before, after, count, change);
}

// Beyond the largest float16: what its Inf and NaN have become on the way (float_formats.h).
constexpr double kFloat16Beyond = 65536;

}  // namespace

double Moments::Mean(size_t count) const noexcept {
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

double Moments::StandardDeviation(size_t count) const noexcept {
  if (count < 2) return 0;
  const double off = squares_sum - sum * Mean(count);
  // What is all the same has no deviation, whatever rounding made of it.
  return off < 0 ? 0 : std::sqrt(off / static_cast<double>(count - 1));
}

bool MomentsOf(wire::ElementType type, const void* data, size_t count, Moments* moments) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  Moments found;
  switch (type) {
    case wire::ElementType::kFloat64:
      MomentsIn<Float64>(bytes, count, &found);
      break;
    case wire::ElementType::kFloat32:
      MomentsIn<Float32>(bytes, count, &found);
      break;
    case wire::ElementType::kBFloat16:
      MomentsIn<BFloat16>(bytes, count, &found);
      break;
    case wire::ElementType::kFloat16:
      MomentsIn<Float16>(bytes, count, &found);
      if (found.max_abs >= kFloat16Beyond) {
        found.sum = found.squares_sum = found.max_abs = __builtin_nan("");
      }
      break;
    default:
      return false;
  }
  if (std::isnan(found.squares_sum)) found.max_abs = found.squares_sum;  // a NaN is never larger
  *moments = found;
  return true;
}

bool ChangeOf(wire::ElementType type, const void* before, const void* after, size_t count,
              Change* change) noexcept {
  const auto* from = static_cast<const unsigned char*>(before);
  const auto* to = static_cast<const unsigned char*>(after);
  *change = {};
  switch (type) {
    case wire::ElementType::kFloat64:
      ChangeIn<Float64>(from, to, count, change);
      return true;
    case wire::ElementType::kFloat32:
      ChangeIn<Float32>(from, to, count, change);
      return true;
    case wire::ElementType::kBFloat16:
      ChangeIn<BFloat16>(from, to, count, change);
      return true;
    case wire::ElementType::kFloat16:
      ChangeIn<Float16>(from, to, count, change);
      return true;
    default:
      return false;
  }
}

}  // namespace nanwatch
