// SPDX-License-Identifier: Apache-2.0
// The loops that every instruction set shares, written so that the compiler turns them into vector
// code of the including file's level. Only for the scan_*.cc files; see kernels.h for why nothing
// here has linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/check/float_bits.h"
#include "shim/check/kernels.h"

namespace nanwatch {
namespace {

// A word from memory of any alignment. A fixed-size memcpy is the one form that is no out-of-line
// call and no undefined behaviour.
template <class Word>
[[gnu::always_inline]] inline Word LoadWord(const char* at) noexcept {
  Word word;
  __builtin_memcpy(&word, at, sizeof(word));
  return word;
}

Magnitude LookAtNothing(const void*, size_t) { return {0, Magnitude::Kind::kNone}; }
uint8_t NoKinds(const void*, size_t) { return 0; }
void NoTally(const void*, size_t, Tally*) {}
double NoValue(int64_t) { return 0; }

// Skips clean blocks at the speed of `kLook`, looks closely at the others, and stops after one with
// a NaN.
template <class Format, int kParts, Magnitude (*kLook)(const void*, size_t)>
uint8_t Kinds(const void* data, size_t count) {
  using Word = typename Format::Word;
  constexpr size_t kBlockWords = 4096 / sizeof(Word);
  const char* at = static_cast<const char*>(data);
  uint8_t kinds = 0;
  for (size_t left = count * kParts; left != 0 && (kinds & wire::kHasNan) == 0;) {
    const size_t words = left < kBlockWords ? left : kBlockWords;
    if (kLook(at, words / kParts).kind == Magnitude::Kind::kNonFinite) {
      Word nan = 0, pos_inf = 0, neg_inf = 0;
      for (size_t i = 0; i < words; ++i) {
        const Word word = LoadWord<Word>(at + i * sizeof(Word));
        nan |= Format::IsNan(word);
        pos_inf |= Format::IsPosInf(word);
        neg_inf |= Format::IsNegInf(word);
      }
      kinds |= (nan ? wire::kHasNan : 0) | (pos_inf ? wire::kHasPosInf : 0) |
               (neg_inf ? wire::kHasNegInf : 0);
    }
    at += words * sizeof(Word);
    left -= words;
  }
  return kinds;
}

template <class Format>
size_t FirstBadWord(const char* at, size_t words) noexcept {
  using Word = typename Format::Word;
  size_t i = 0;
  while (i < words && !Format::IsNonFinite(LoadWord<Word>(at + i * sizeof(Word)))) ++i;
  return i;
}

// Words looked at together: their values fit the first-level cache, and 32-bit counters do not
// overflow.
constexpr size_t kTallyWords = 512;

// A running addition has an order, which the compiler must keep; so the values are first written
// down, which has none, and then added into eight sums, which have eight and fit a vector.
template <class Format>
void AddFinite(const char* at, size_t words, Tally* tally) noexcept {
  using Word = typename Format::Word;
  constexpr size_t kLanes = 8;
  double values[kTallyWords + kLanes];
  for (size_t i = 0; i < words; ++i) {
    values[i] = Format::ToDouble(LoadWord<Word>(at + i * sizeof(Word)));
  }
  for (size_t i = words; i % kLanes != 0; ++i) values[i] = 0;
  double lanes[kLanes] = {};
  double lanes_scaled[kLanes] = {};
  for (size_t i = 0; i < words; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += values[i + lane];
      if constexpr (sizeof(Word) == 8) lanes_scaled[lane] += values[i + lane] * kSumScale;
    }
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    tally->sum += lanes[lane];
    tally->sum_scaled += lanes_scaled[lane];
  }
}

// One block of at most kTallyWords.
template <class Format>
void TallyBlock(const char* at, size_t words, Tally* tally) noexcept {
  using Word = typename Format::Word;
  using Key = typename Format::Key;
  constexpr Key kKeyLowest = sizeof(Key) == 8 ? Key(INT64_MIN) : Key(INT32_MIN);
  constexpr Key kKeyHighest = sizeof(Key) == 8 ? Key(INT64_MAX) : Key(INT32_MAX);
  Key nan = 0, pos_inf = 0, neg_inf = 0, key_min = kKeyHighest, key_max = kKeyLowest;
  for (size_t i = 0; i < words; ++i) {
    const Word word = LoadWord<Word>(at + i * sizeof(Word));
    // All bits or none: written as conditions, these would stop the vectoriser.
    const Key bad = -Key{Format::IsNonFinite(word)};
    const Key key = Format::ToKey(word) & ~bad;
    nan += Format::IsNan(word);
    pos_inf += Format::IsPosInf(word);
    neg_inf += Format::IsNegInf(word);
    const Key low = key | (kKeyHighest & bad);
    const Key high = key | (kKeyLowest & bad);
    key_min = low < key_min ? low : key_min;
    key_max = high > key_max ? high : key_max;
  }
  const Key bad_words = nan + pos_inf + neg_inf;
  tally->nan += static_cast<uint64_t>(nan);
  tally->pos_inf += static_cast<uint64_t>(pos_inf);
  tally->neg_inf += static_cast<uint64_t>(neg_inf);
  tally->finite_parts += words - static_cast<size_t>(bad_words);
  if (static_cast<size_t>(bad_words) == words) return;
  if (key_min < tally->key_min) tally->key_min = key_min;
  if (key_max > tally->key_max) tally->key_max = key_max;

  AddFinite<Format>(at, words, tally);
}

template <class Format>
void TallyReal(const void* data, size_t count, Tally* tally) {
  using Word = typename Format::Word;
  const char* at = static_cast<const char*>(data);
  for (size_t done = 0; done < count;) {
    const size_t words = count - done < kTallyWords ? count - done : kTallyWords;
    const uint64_t finite_before = tally->finite_parts;
    TallyBlock<Format>(at, words, tally);
    if (tally->first_bad == SIZE_MAX && tally->finite_parts - finite_before != words) {
      tally->first_bad = done + FirstBadWord<Format>(at, words);
    }
    at += words * sizeof(Word);
    done += words;
  }
}

template <class Format>
void TallyMixedComplex(const char* at, size_t first, size_t elements, Tally* tally) noexcept {
  using Word = typename Format::Word;
  for (size_t i = 0; i < elements; ++i, at += 2 * sizeof(Word)) {
    const uint8_t kinds =
        Format::Kinds(LoadWord<Word>(at)) | Format::Kinds(LoadWord<Word>(at + sizeof(Word)));
    if (kinds == 0) {
      TallyBlock<Format>(at, 2, tally);
      continue;
    }
    tally->nan += (kinds & wire::kHasNan) != 0;
    tally->pos_inf += (kinds & wire::kHasPosInf) != 0;
    tally->neg_inf += (kinds & wire::kHasNegInf) != 0;
    if (tally->first_bad == SIZE_MAX) tally->first_bad = first + i;
  }
}

// Both parts of a complex element decide what it is, so blocks with a bad one are taken element by
// element.
template <class Format, Magnitude (*kLook)(const void*, size_t)>
void TallyComplex(const void* data, size_t count, Tally* tally) {
  using Word = typename Format::Word;
  constexpr size_t kBlockElements = kTallyWords / 2;
  const char* at = static_cast<const char*>(data);
  for (size_t done = 0; done < count;) {
    const size_t elements = count - done < kBlockElements ? count - done : kBlockElements;
    if (kLook(at, elements).kind != Magnitude::Kind::kNonFinite) {
      TallyBlock<Format>(at, 2 * elements, tally);
    } else {
      TallyMixedComplex<Format>(at, done, elements, tally);
    }
    at += elements * 2 * sizeof(Word);
    done += elements;
  }
}

template <class Format>
double KeyToDouble(int64_t key) {
  return Format::KeyToDouble(static_cast<typename Format::Key>(key));
}

// Fills the row of one element type. `LookFor` is the level's own fast scan: LookFor<Format,
// parts>::Run.
template <template <class, int> class LookFor, wire::ElementType kType>
consteval void SetRow(Kernels* kernels) {
  using Format = FormatOf<kType>;
  constexpr int kParts = PartsOf(kType);
  constexpr auto kRow = static_cast<size_t>(kType);
  kernels->look[kRow] = LookFor<Format, kParts>::Run;
  kernels->kinds[kRow] = Kinds<Format, kParts, LookFor<Format, kParts>::Run>;
  if constexpr (kParts == 2) {
    kernels->tally[kRow] = TallyComplex<Format, LookFor<Format, kParts>::Run>;
  } else {
    kernels->tally[kRow] = TallyReal<Format>;
  }
  kernels->key_to_double[kRow] = KeyToDouble<Format>;
}

template <template <class, int> class LookFor>
consteval Kernels MakeKernels(const char* name) {
  using enum wire::ElementType;
  Kernels kernels{name, {LookAtNothing}, {NoKinds}, {NoTally}, {NoValue}};
  SetRow<LookFor, kFloat64>(&kernels);
  SetRow<LookFor, kFloat32>(&kernels);
  SetRow<LookFor, kFloat16>(&kernels);
  SetRow<LookFor, kBFloat16>(&kernels);
  SetRow<LookFor, kComplex128>(&kernels);
  SetRow<LookFor, kComplex64>(&kernels);
  SetRow<LookFor, kComplex32>(&kernels);
  SetRow<LookFor, kFloat8E5M2>(&kernels);
  SetRow<LookFor, kFloat8E4M3Fn>(&kernels);
  SetRow<LookFor, kFloat8E5M2Fnuz>(&kernels);
  SetRow<LookFor, kFloat8E4M3Fnuz>(&kernels);
  SetRow<LookFor, kFloat8E8M0Fnu>(&kernels);
  return kernels;
}

}  // namespace
}  // namespace nanwatch
