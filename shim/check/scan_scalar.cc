// The level that every processor runs: plain loops, which the compiler turns into what the
// architecture's baseline has (SSE2, NEON).
#include "shim/check/kernel_loops.h"

namespace nanwatch {
namespace {

template <class Format, int kParts>
struct ScalarScan {
  using Word = typename Format::Word;

  static bool Run(const void* data, size_t count) {
    constexpr size_t kBlockWords = 4096 / sizeof(Word);
    const char* at = static_cast<const char*>(data);
    for (size_t left = count * kParts; left != 0;) {
      const size_t words = left < kBlockWords ? left : kBlockWords;
      if (Block(at, words)) return true;
      at += words * sizeof(Word);
      left -= words;
    }
    return false;
  }

 private:
  // The comparison of float_bits.h without a comparison, which SSE2 does not have for unsigned
  // numbers or 64 bits: the distance from the limit to the sign bit is added, and carries into it
  // when the limit is passed. Formats that use the sign bit are bytes, and for those SSE2 has a
  // maximum.
  static bool Block(const char* at, size_t words) noexcept {
    Word seen = 0;
    if constexpr (Format::kMask == Format::kOnes) {
      for (size_t i = 0; i < words; ++i) {
        const Word word = LoadWord<Word>(at + i * sizeof(Word));
        const Word distance = static_cast<Word>((word & Format::kMask) ^ Format::kFlip);
        seen = distance > seen ? distance : seen;
      }
      return seen > Format::kLimit;
    } else {
      constexpr Word kCarry = static_cast<Word>(Format::kSign - 1 - Format::kLimit);
      for (size_t i = 0; i < words; ++i) {
        const Word word = LoadWord<Word>(at + i * sizeof(Word));
        seen |= static_cast<Word>((word & Format::kMask) + kCarry);
      }
      return (seen & Format::kSign) != 0;
    }
  }
};

}  // namespace

constinit const Kernels kScalarKernels = MakeKernels<ScalarScan>("scalar");

}  // namespace nanwatch
