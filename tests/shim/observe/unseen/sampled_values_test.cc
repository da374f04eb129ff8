// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/sampled_values.h"

#include <ATen/core/TensorBase.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace nanwatch {
namespace {

using Numbers = std::vector<int64_t>;

// Tensors that ops "leave", by number.
class Recorded : public ::testing::Test {
 protected:
  // The number of the value that had to make room.
  std::optional<int64_t> Add(const at::TensorBase& tensor, int64_t number) {
    PlainTensor plain;
    wire::Unchecked reason;
    EXPECT_EQ(ReadTensor(tensor, &plain, &reason), Readable::kYes);
    SampledValue value{};
    value.seen.Copy(plain);
    value.sequence = number;
    SampledValue oldest;
    bool added = false;
    const bool evicted = values_.Add(value, &oldest, &added);
    EXPECT_TRUE(added);
    if (!evicted) return std::nullopt;
    oldest.Drop();
    return oldest.sequence;
  }

  Numbers Take() {
    Numbers numbers;
    for (SampledValue& value : values_.Take()) {
      numbers.push_back(value.sequence);
      value.Drop();
    }
    return numbers;
  }

  SampledValues values_;
};

TEST_F(Recorded, AreTakenInTheOrderOfWritingAndOnce) {
  const at::Tensor a = at::ones({4}), b = at::ones({4}), c = at::ones({4});
  EXPECT_FALSE(values_.Any());
  Add(b, 1);
  Add(a, 2);
  Add(c, 3);
  EXPECT_TRUE(values_.Any());
  EXPECT_EQ(Take(), (Numbers{1, 2, 3}));
  EXPECT_FALSE(values_.Any());
  EXPECT_EQ(Take(), Numbers{});
}

TEST_F(Recorded, AValueThatIsWrittenOverIsNoLongerThere) {
  const at::Tensor a = at::ones({4}), b = at::ones({4});
  Add(a, 1);
  Add(b, 2);
  Add(a, 3);
  EXPECT_EQ(Take(), (Numbers{2, 3}));
}

TEST_F(Recorded, APartThatIsWrittenOverLeavesTheRest) {
  const at::Tensor a = at::ones({8});
  Add(a, 1);
  Add(a.slice(0, 0, 4), 2);
  EXPECT_EQ(Take(), (Numbers{1, 2}));
  Add(a.slice(0, 0, 4), 3);
  Add(a, 4);
  EXPECT_EQ(Take(), (Numbers{4}));
}

// Columns have those of others between them.
TEST_F(Recorded, AWriteWithGapsDropsNothing) {
  const at::Tensor a = at::ones({4, 4});
  Add(a.slice(1, 1, 2), 1);
  Add(a.slice(1, 0, 3), 2);
  EXPECT_EQ(Take(), (Numbers{1, 2}));
}

TEST_F(Recorded, TheOldestMakesRoomAndIsHandedOver) {
  std::vector<at::Tensor> kept;
  for (int64_t i = 0; i < SampledValues::kKept; ++i) {
    kept.push_back(at::ones({2}));
    EXPECT_EQ(Add(kept.back(), i), std::nullopt);
  }
  const at::Tensor more = at::ones({2});
  EXPECT_EQ(Add(more, 5000), 0);
  EXPECT_EQ(Add(kept[1], 5001), std::nullopt) << "what it has written over is gone already";
  const Numbers taken = Take();
  EXPECT_EQ(taken.size(), SampledValues::kKept);
  EXPECT_EQ(taken.front(), 2);
  EXPECT_EQ(taken.back(), 5001);
}

TEST_F(Recorded, HoldNoMemory) {
  at::Tensor a = at::ones({1 << 10});
  const c10::weak_intrusive_ptr<c10::StorageImpl> memory(a.storage().getWeakStorageImpl());
  Add(a, 1);
  a = at::Tensor();
  EXPECT_TRUE(memory.expired());
  EXPECT_EQ(Take(), (Numbers{1})) << "that it is gone is for those to see who read it";
}

TEST_F(Recorded, AreLetGoOf) {
  at::Tensor a = at::ones({4});
  const auto weak_holds = [&a] { return a.storage().getWeakStorageImpl().weak_use_count(); };
  const uint32_t before = weak_holds();
  Add(a, 1);
  EXPECT_EQ(a.storage().use_count(), 1U);
  EXPECT_EQ(weak_holds(), before + 1);
  values_.Clear();
  EXPECT_EQ(weak_holds(), before);
  EXPECT_FALSE(values_.Any());
  EXPECT_EQ(Take(), Numbers{});
}

}  // namespace
}  // namespace nanwatch
