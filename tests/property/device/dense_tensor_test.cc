// SPDX-License-Identifier: Apache-2.0
// Elements side by side: sizes around the 16 bytes of a load, a turn of the block's threads and a
// block's share, every alignment that an element may have, every position of a bad value.
#include "tests/property/device/checked_launch.h"
#include "tests/property/device/every_type.h"

namespace nanwatch::device {
namespace {

constexpr size_t kEveryPositionCountMax = 36;

class KernelOnDenseMemory : public EveryType {
 protected:
  // Elements: every small count, and those whose whole vectors come close to 512, to a share and to
  // what one block takes alone.
  std::vector<size_t> Counts() const {
    std::vector<size_t> counts;
    for (size_t count = 0; count <= kEveryPositionCountMax; ++count) counts.push_back(count);
    const size_t per_vector = kVectorBytes / values_.element_bytes();
    for (const size_t vectors : {512u, 2048u, 4096u}) {
      for (const size_t count : {vectors * per_vector - 1, vectors * per_vector,
                                 (vectors + 1) * per_vector, vectors * per_vector + 1}) {
        counts.push_back(count);
      }
    }
    return counts;
  }

  // Where `bytes` can lie: at either edge, and a few parts away from it.
  std::vector<char*> Places(size_t bytes) {
    const size_t part = values_.part_bytes();
    const size_t away = random_() % 16 / part * part;
    return {memory_.begin(), memory_.end() - bytes, memory_.begin() + part,
            memory_.end() - bytes - std::max(away, part)};
  }

  std::vector<size_t> PartPositions(size_t parts) {
    std::vector<size_t> positions;
    if (parts <= kEveryPositionCountMax) {
      for (size_t i = 0; i < parts; ++i) positions.push_back(i);
      return positions;
    }
    return {0, random_() % parts, parts - 1};
  }

  JobTensor Tensor(const char* data, size_t count) const {
    return DenseTensor(values_.type(), data, count);
  }

  uint32_t Blocks(size_t parts) {
    constexpr uint32_t kTried[] = {1, 2, 3, 8};
    return parts <= kEveryPositionCountMax ? kTried[random_() % 2] : kTried[random_() % 4];
  }

  GuardedMemory memory_{5003 * 16 + 4096};
};

TEST_P(KernelOnDenseMemory, ABadValueIsFoundAtEveryPositionAndNothingElseIs) {
  for (const size_t count : Counts()) {
    const size_t bytes = count * values_.element_bytes();
    for (char* const data : Places(bytes)) {
      values_.FillBad(memory_.begin(), static_cast<size_t>(data - memory_.begin()));
      values_.FillFinite(data, bytes);
      values_.FillBad(data + bytes, static_cast<size_t>(memory_.end() - data) - bytes);
      const size_t parts = bytes / values_.part_bytes();
      CheckedLaunch clean({Tensor(data, count)}, {});
      clean.Run(Blocks(parts), random_);
      clean.ExpectNoAnswer();
      for (const size_t position : PartPositions(parts)) {
        char* const at = data + position * values_.part_bytes();
        uint64_t before = 0;
        std::memcpy(&before, at, values_.part_bytes());
        values_.PutBad(at);
        CheckedLaunch launch({Tensor(data, count)}, {});
        launch.Run(Blocks(parts), random_);
        launch.ExpectAsReference();
        std::memcpy(at, &before, values_.part_bytes());
        ASSERT_FALSE(HasFailure()) << count << " elements at byte " << data - memory_.begin()
                                   << ", part " << position << " bad";
      }
    }
  }
}

TEST_P(KernelOnDenseMemory, CountsAgreeWithTheReferenceWhereMuchIsBad) {
  for (const size_t count : {1, 2, 511, 513, 1023, 1025, 5003}) {
    const size_t bytes = count * values_.element_bytes();
    for (const int one_in : {1, 2, 50}) {
      char* const data = memory_.end() - bytes - values_.part_bytes();
      values_.FillFinite(data, bytes);
      values_.PutBad(data);
      for (size_t at = 0; at < bytes; at += values_.part_bytes()) {
        if (random_() % one_in == 0) values_.PutBad(data + at);
      }
      CheckedLaunch launch({Tensor(data, count)}, {Tensor(data, count)});
      launch.Run(3, random_);
      launch.ExpectAsReference();
      ASSERT_FALSE(HasFailure()) << count << " elements, one in " << one_in << " bad";
    }
  }
}

NANWATCH_EVERY_TYPE(KernelOnDenseMemory);

}  // namespace
}  // namespace nanwatch::device
