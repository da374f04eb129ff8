// SPDX-License-Identifier: Apache-2.0
// The fast pass over one tensor: is there anything non-finite in a share of its units?
//
// Each thread loads kScanLoads units before it looks at one: 512 threads of 8 loads of 16 bytes are
// 64 KiB in flight for each block.
#pragma once

#include <cstdint>

#include "shim/device/check_walk.h"
#include "shim/device/check_words.h"

namespace nanwatch::device {

inline constexpr uint32_t kScanLoads = 8;
// Of units that do not form one run, whose addresses take registers too.
inline constexpr uint32_t kScatterLoads = 4;

struct Vector {
  uint32_t word[4];
};

// The word of a part that has its exponent.
template <class Word>
NANWATCH_BITS constexpr uint32_t UpperWord(Word part) noexcept {
  if constexpr (sizeof(Word) == 8) return static_cast<uint32_t>(part >> 32);
  return static_cast<uint32_t>(part);
}

template <WordTest::Form kForm>
NANWATCH_BITS uint32_t BadVector(const WordTest& test, const Vector& vector) noexcept {
  return BadInEvenWord<kForm>(test, vector.word[0]) | BadInOddWord<kForm>(test, vector.word[1]) |
         BadInEvenWord<kForm>(test, vector.word[2]) | BadInOddWord<kForm>(test, vector.word[3]);
}

// Units [begin, end) of a block's share, of which its threads take every 512th. A turn that would
// pass the end reads the last unit again, which is cheaper than a branch around each load.

// One run of vectors from `base` on.
template <class Memory, WordTest::Form kForm>
NANWATCH_BITS uint32_t BadInRun(const WordTest& of_type, uint64_t base, uint64_t begin,
                                uint64_t end, uint32_t thread) noexcept {
  const WordTest test = of_type;
  uint32_t bad = 0;
  NANWATCH_NO_UNROLL
  for (uint64_t unit = begin + thread; unit < end; unit = UnitAfter(unit, kScanLoads)) {
    Vector vectors[kScanLoads];
    for (uint32_t i = 0; i < kScanLoads; ++i) {
      const uint64_t at = UnitAfter(unit, i);
      vectors[i] = Memory::LoadVector(base + (at < end ? at : end - 1) * kVectorBytes);
    }
    for (uint32_t i = 0; i < kScanLoads; ++i) bad |= BadVector<kForm>(test, vectors[i]);
  }
  return bad;
}

template <class Memory, WordTest::Form kForm>
NANWATCH_BITS uint32_t BadVectorsAt(const WordTest& test,
                                    const uint64_t (&addresses)[kScatterLoads]) noexcept {
  Vector vectors[kScatterLoads];
  for (uint32_t i = 0; i < kScatterLoads; ++i) vectors[i] = Memory::LoadVector(addresses[i]);
  uint32_t bad = 0;
  for (const Vector& vector : vectors) bad |= BadVector<kForm>(test, vector);
  return bad;
}

template <class Memory, class Word, WordTest::Form kForm>
NANWATCH_BITS uint32_t BadPartsAt(const WordTest& test,
                                  const uint64_t (&addresses)[kScatterLoads]) noexcept {
  Word parts[kScatterLoads];
  for (uint32_t i = 0; i < kScatterLoads; ++i) {
    parts[i] = Memory::template LoadPart<Word>(addresses[i]);
  }
  uint32_t bad = 0;
  for (const Word part : parts) bad |= BadInOddWord<kForm>(test, UpperWord(part));
  return bad;
}

template <class Memory>
NANWATCH_BITS uint32_t BadUnitsAt(const Walk& walk,
                                  const uint64_t (&addresses)[kScatterLoads]) noexcept {
  const WordTest& test = walk.test;
  const bool adds = test.form == WordTest::kAdd;
  switch (walk.unit_bytes) {
    case 1:
      return adds ? BadPartsAt<Memory, uint8_t, WordTest::kAdd>(test, addresses)
                  : BadPartsAt<Memory, uint8_t, WordTest::kEqual>(test, addresses);
    case 2:  // the form kEqual is for parts of a byte alone
      return BadPartsAt<Memory, uint16_t, WordTest::kAdd>(test, addresses);
    case 4:
      return BadPartsAt<Memory, uint32_t, WordTest::kAdd>(test, addresses);
    case 8:
      return BadPartsAt<Memory, uint64_t, WordTest::kAdd>(test, addresses);
    default:
      return adds ? BadVectorsAt<Memory, WordTest::kAdd>(test, addresses)
                  : BadVectorsAt<Memory, WordTest::kEqual>(test, addresses);
  }
}

// Units that do not form one run.
template <class Memory>
NANWATCH_BITS uint32_t BadScattered(const Walk& walk, uint64_t begin, uint64_t end,
                                    uint32_t thread) noexcept {
  uint32_t bad = 0;
  NANWATCH_NO_UNROLL
  for (uint64_t unit = begin + thread; unit < end; unit = UnitAfter(unit, kScatterLoads)) {
    Memory::ForgetBlock();
    uint64_t units[kScatterLoads], addresses[kScatterLoads];
    for (uint32_t i = 0; i < kScatterLoads; ++i) {
      const uint64_t at = UnitAfter(unit, i);
      units[i] = at < end ? at : end - 1;
    }
    FindUnits<Memory>(walk, units, addresses);
    Memory::ForgetBlock();
    bad |= BadUnitsAt<Memory>(walk, addresses);
  }
  return bad;
}

template <class Memory>
NANWATCH_BITS uint32_t BadInShare(const Walk& walk, uint64_t begin, uint64_t end,
                                  uint32_t thread) noexcept {
  uint32_t bad = 0;
  if (!walk.is_one_run) {
    bad = BadScattered<Memory>(walk, begin, end, thread);
  } else if (walk.test.form == WordTest::kAdd) {
    bad = BadInRun<Memory, WordTest::kAdd>(walk.test, walk.base, begin, end, thread);
  } else {
    bad = BadInRun<Memory, WordTest::kEqual>(walk.test, walk.base, begin, end, thread);
  }
  return bad & walk.test.tops;
}

// One part that stands by itself.
template <class Memory>
NANWATCH_BITS uint32_t BadPart(const WordTest& test, uint32_t bytes, uint64_t address) noexcept {
  uint32_t bad = 0;
  switch (bytes) {
    case 1: {
      const uint32_t word = Memory::template LoadPart<uint8_t>(address);
      bad = test.form == WordTest::kAdd ? BadInOddWord<WordTest::kAdd>(test, word)
                                        : BadInOddWord<WordTest::kEqual>(test, word);
      break;
    }
    case 2:
      bad = BadInOddWord<WordTest::kAdd>(test, Memory::template LoadPart<uint16_t>(address));
      break;
    case 4:
      bad = BadInOddWord<WordTest::kAdd>(test, Memory::template LoadPart<uint32_t>(address));
      break;
    default:
      bad = BadInOddWord<WordTest::kAdd>(test,
                                         UpperWord(Memory::template LoadPart<uint64_t>(address)));
  }
  return bad & test.tops;
}

// One part of the head or tail of a run, if `slot` has one: slots [0, 16) are for the head, which
// has at most 15 parts, [16, 32) for the tail.
inline constexpr uint32_t kEdgeSlots = 32;
template <class Memory>
NANWATCH_BITS uint32_t BadInEdges(const Walk& walk, uint32_t slot) noexcept {
  const bool is_head = slot < kEdgeSlots / 2;
  const uint32_t part = slot % (kEdgeSlots / 2);
  if (part >= (is_head ? walk.head_parts : walk.tail_parts)) return 0;
  const uint64_t address = (is_head ? walk.head : walk.tail) + uint64_t{part} * walk.part_bytes;
  return BadPart<Memory>(walk.test, walk.part_bytes, address);
}

}  // namespace nanwatch::device
