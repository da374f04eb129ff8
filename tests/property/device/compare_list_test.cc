// SPDX-License-Identifier: Apache-2.0
// What nanwatch_compare_list says of an update is what the CPU says of the same sample: every type
// that is measured, sizes around that of the sample and far beyond it, by one block and by several.
#include <cstring>

#include "shim/check/element_sample.h"
#include "tests/property/device/checked_measure_list.h"
#include "tests/property/device/every_type.h"

namespace nanwatch::device {
namespace {

using wire::ElementType;

constexpr size_t kSampled = 880;

class ComparisonsOfType : public EveryType {
 protected:
  // Elements of magnitudes about 1, whatever the type.
  void Fill(std::vector<char>& bytes) {
    const size_t part = values_.part_bytes();
    for (size_t at = 0; at + part <= bytes.size(); at += part) {
      uint64_t word = random_();
      switch (GetParam()) {
        case ElementType::kFloat64:
          word = (word & 0x800fffffffffffff) | 0x3ff0000000000000;
          break;
        case ElementType::kFloat32:
          word = (word & 0x807fffff) | 0x3f800000;
          break;
        case ElementType::kFloat16:
          word = (word & 0x83ff) | 0x3c00;
          break;
        default:
          word = (word & 0x807f) | 0x3f80;
          break;
      }
      std::memcpy(bytes.data() + at, &word, part);
    }
  }

  std::vector<unsigned char> SampleOf(const std::vector<char>& bytes) {
    std::vector<unsigned char> sample(kSampled * values_.part_bytes());
    CopySample(bytes.data(), bytes.size() / values_.part_bytes(), values_.part_bytes(), kSampled,
               sample.data());
    return sample;
  }
};

TEST_P(ComparisonsOfType, AreThoseOfTheCpu) {
  if (!IsMeasured(static_cast<uint8_t>(GetParam()))) return;
  std::vector<std::vector<char>> memory;
  std::vector<std::vector<double>> kept;
  std::vector<JobTensor> tensors;
  for (const size_t count : {1ul, 0ul, 15ul, kSampled - 1, kSampled, kSampled + 1, 895ul, 896ul,
                             897ul, 2 * kSampled, 100'003ul}) {
    Fill(memory.emplace_back(count * values_.part_bytes()));
    kept.emplace_back(std::min(count, kSampled), 1e300);
    tensors.push_back(DenseTensor(GetParam(), memory.back().data(), count));
  }
  CheckedMeasureList begins(tensors);
  begins.RunComparison(kept, 3, random_);
  for (const uint32_t blocks : {1u, 4u, 11u, 40u}) {
    std::vector<std::vector<unsigned char>> before;
    for (std::vector<char>& bytes : memory) {
      before.push_back(SampleOf(bytes));
      if (blocks != 4) Fill(bytes);
    }
    CheckedMeasureList ends(tensors);
    ends.RunComparison(kept, blocks, random_);
    for (size_t i = 0; i < tensors.size(); ++i) {
      Change change;
      EXPECT_TRUE(ChangeOf(GetParam(), before[i].data(), SampleOf(memory[i]).data(), kept[i].size(),
                           &change));
      const Measure& told = ends.result.measures[i];
      EXPECT_NEAR(told.sum, change.before_squares, 1e-12 * change.before_squares) << i;
      EXPECT_NEAR(told.squares, change.change_squares, 1e-12 * change.change_squares) << i;
      EXPECT_EQ(change.change_squares == 0, blocks == 4 || kept[i].empty());
    }
  }
}

NANWATCH_EVERY_TYPE(ComparisonsOfType);

}  // namespace
}  // namespace nanwatch::device
