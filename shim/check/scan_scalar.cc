// SPDX-License-Identifier: Apache-2.0
// The level that every processor runs: plain loops, which the compiler turns into what the
// architecture's baseline has (SSE2, NEON).
#include "shim/check/kernel_loops.h"

namespace nanwatch {
namespace {

template <class Format, int kParts>
struct ScalarScan {
  using Word = typename Format::Word;

  static Magnitude Run(const void* data, size_t count) {
    constexpr size_t kBlockWords = 4096 / sizeof(Word);
    const char* at = static_cast<const char*>(data);
    Word largest = 0;
    for (size_t left = count * kParts; left != 0;) {
      const size_t words = left < kBlockWords ? left : kBlockWords;
      const Word seen = Largest(at, words);
      if (seen > Format::kLimit) return {0, Magnitude::Kind::kNonFinite};
      largest = seen > largest ? seen : largest;
      at += words * sizeof(Word);
      left -= words;
    }
    // Where bits are flipped, the largest word is not the largest magnitude's.
    if (count == 0 || Format::kFlip != 0) return {0, Magnitude::Kind::kNone};
    return {largest, Magnitude::Kind::kLargest};
  }

 private:
  // Of the words as float_bits.h transforms them.
  static Word Largest(const char* at, size_t words) noexcept {
    Word largest = 0;
    for (size_t i = 0; i < words; ++i) {
      const Word word = LoadWord<Word>(at + i * sizeof(Word));
      const Word seen = static_cast<Word>((word & Format::kMask) ^ Format::kFlip);
      largest = seen > largest ? seen : largest;
    }
    return largest;
  }
};

}  // namespace

constinit const Kernels kScalarKernels = MakeKernels<ScalarScan>("scalar");

}  // namespace nanwatch
