// SPDX-License-Identifier: Apache-2.0
// The tests of words against the written definition of each format: every part of 8 and 16 bits, in
// every place of a word and beside every kind of neighbour; of the wider ones those that matter.
#include "tests/property/device/every_type.h"

#include "shim/device/check_count.h"
#include "shim/device/check_scan.h"

namespace nanwatch::device {
namespace {

class KernelWords : public EveryType {
 protected:
  // Every part of a narrow format; else a sample, the delicate ones among it.
  std::vector<uint64_t> Parts() {
    std::vector<uint64_t> parts = reference::BadWords(GetParam());
    for (const uint64_t word : reference::DelicateFiniteWords(GetParam())) parts.push_back(word);
    const size_t bits = 8 * values_.part_bytes();
    if (bits <= 16) {
      for (uint64_t word = 0; word < uint64_t{1} << bits; ++word) parts.push_back(word);
    } else {
      for (int i = 0; i < 100'000; ++i) parts.push_back(random_() >> (64 - bits));
      // One exponent in 256 is the highest: make sure of it, with any mantissa.
      for (int i = 0; i < 10'000; ++i) {
        parts.push_back((random_() >> (64 - bits)) | reference::BadWords(GetParam())[5]);
      }
    }
    return parts;
  }

  bool IsBad(uint64_t part) const {
    return reference::Decode(GetParam(), part).kind != reference::Kind::kFinite;
  }

  WordTest Test() const {
    WordTest test = {};
    WithFormat(GetParam(), [&](auto format) { test = TestOf<decltype(format)>(); });
    return test;
  }

  static bool IsBadVector(const WordTest& test, const Vector& vector) {
    const uint32_t bad = test.form == WordTest::kAdd ? BadVector<WordTest::kAdd>(test, vector)
                                                     : BadVector<WordTest::kEqual>(test, vector);
    return (bad & test.tops) != 0;
  }
};

TEST_P(KernelWords, AVectorIsBadIfAndOnlyIfAPartIs) {
  const WordTest test = Test();
  const size_t part_bytes = values_.part_bytes();
  for (const uint64_t part : Parts()) {
    const bool is_bad = IsBad(part);
    // Neighbours: the finite words from which a carry or a borrow would come, one kind at a time.
    for (const uint64_t neighbour : reference::DelicateFiniteWords(GetParam())) {
      char bytes[kVectorBytes];
      for (size_t at = 0; at < kVectorBytes; at += part_bytes) {
        std::memcpy(bytes + at, &neighbour, part_bytes);
      }
      const size_t place = random_() % (kVectorBytes / part_bytes) * part_bytes;
      std::memcpy(bytes + place, &part, part_bytes);
      Vector vector;
      std::memcpy(&vector, bytes, sizeof(vector));
      ASSERT_EQ(IsBadVector(test, vector), is_bad)
          << std::hex << "0x" << part << " beside 0x" << neighbour << " at byte " << place;
    }
  }
}

TEST_P(KernelWords, APartDecodesToItsValue) {
  for (const uint64_t part : Parts()) {
    const reference::Value value = reference::Decode(GetParam(), part);
    const DecodedPart decoded = DecodePart(GetParam(), part);
    ASSERT_EQ(decoded.kinds != 0, value.kind != reference::Kind::kFinite) << std::hex << part;
    if (value.kind == reference::Kind::kFinite) {
      ASSERT_EQ(__builtin_bit_cast(double, decoded.bits), value.value) << std::hex << part;
    }
  }
}

NANWATCH_EVERY_TYPE(KernelWords);

}  // namespace
}  // namespace nanwatch::device
