// SPDX-License-Identifier: Apache-2.0
// Elements side by side: every size around the widths of vectors and blocks, every alignment, every
// position and kind of a bad value, between two pages that may not be touched.
#include <algorithm>
#include <cstring>

#include "tests/property/check/guarded_memory.h"
#include "tests/property/check/level_and_type.h"

namespace nanwatch {
namespace {

constexpr size_t kEveryPositionCountMax = 70;

std::vector<size_t> Counts() {
  std::vector<size_t> counts;
  for (size_t count = 0; count <= kEveryPositionCountMax; ++count) counts.push_back(count);
  for (size_t around : {128, 256, 512, 1024, 2048, 4096}) {
    for (size_t count : {around - 1, around, around + 1}) counts.push_back(count);
  }
  counts.push_back(1543);
  counts.push_back(5003);
  return counts;
}

class DenseMemory : public LevelAndType {
 protected:
  GuardedMemory memory_{5003 * 16 + 4096};

  // Where `bytes` can lie: at either edge, and away from them by a byte and by a part.
  std::vector<char*> Places(size_t bytes) const {
    const size_t part = part_bytes();
    return {memory_.begin(),        memory_.end() - bytes,     memory_.begin() + 1,
            memory_.begin() + part, memory_.end() - bytes - 1, memory_.end() - bytes - part};
  }

  std::vector<size_t> PartPositions(size_t parts) {
    std::vector<size_t> positions;
    if (parts <= kEveryPositionCountMax) {
      for (size_t i = 0; i < parts; ++i) positions.push_back(i);
      return positions;
    }
    for (size_t i : {size_t{0}, size_t{1}, parts / 2, parts - 2, parts - 1}) positions.push_back(i);
    for (int i = 0; i < 24; ++i) positions.push_back(random_() % parts);
    return positions;
  }
};

TEST_P(DenseMemory, EveryBadValueIsFoundAtEveryPositionAndNothingElseIs) {
  const auto bad_words = reference::BadWords(type());
  for (const size_t count : Counts()) {
    const size_t bytes = count * element_bytes();
    for (char* const data : Places(bytes)) {
      // What lies beside the elements is bad, so that reading on would be a false alarm.
      FillBad(memory_.begin(),
              static_cast<size_t>(data - memory_.begin()) / part_bytes() * part_bytes());
      FillFinite(data, bytes);
      const HostileFloatEnvironment environment;
      ASSERT_FALSE(HasNonFinite(type(), data, count)) << count << " elements, none bad";
      for (const size_t position : PartPositions(bytes / part_bytes())) {
        char* const at = data + position * part_bytes();
        uint64_t before = 0;
        std::memcpy(&before, at, part_bytes());
        for (const uint64_t bad : bad_words) {
          std::memcpy(at, &bad, part_bytes());
          ASSERT_TRUE(HasNonFinite(type(), data, count))
              << count << " elements, part " << position << " is 0x" << std::hex << bad;
        }
        std::memcpy(at, &before, part_bytes());
      }
    }
  }
}

TEST_P(DenseMemory, CountsAgreeWithTheReference) {
  for (const size_t count : Counts()) {
    const size_t bytes = count * element_bytes();
    for (char* const data : Places(bytes)) {
      FillFinite(data, bytes);
      const size_t parts = bytes / part_bytes();
      const size_t bad_parts = parts == 0 ? 0 : random_() % 4 == 0 ? parts : random_() % 4;
      for (size_t i = 0; i < bad_parts; ++i) {
        const uint64_t bad = AnyBadWord();
        std::memcpy(data + (bad_parts == parts ? i : random_() % parts) * part_bytes(), &bad,
                    part_bytes());
      }
      const int64_t size = static_cast<int64_t>(count), stride = 1;
      ExpectAsReference({data, type(), 1, &size, &stride, size},
                        std::to_string(count) + " elements");
      if (HasFailure()) return;
    }
  }
}

NANWATCH_EVERY_LEVEL_AND_TYPE(DenseMemory);

}  // namespace
}  // namespace nanwatch
