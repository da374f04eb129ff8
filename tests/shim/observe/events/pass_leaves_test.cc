// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/pass_leaves.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace nanwatch {
namespace {

const c10::StorageImpl* StorageOf(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

class PassLeavesTest : public testing::Test {
 protected:
  at::Tensor leaf_ = at::ones({3});
  PassLeaves leaves_;
};

TEST_F(PassLeavesTest, KnowsTheMemoryOfALeafUntilTheNextPass) {
  EXPECT_FALSE(leaves_.Has(StorageOf(leaf_)));
  leaves_.Add(*leaf_.unsafeGetTensorImpl());
  EXPECT_TRUE(leaves_.Has(StorageOf(leaf_)));
  EXPECT_TRUE(leaves_.Has(StorageOf(leaf_.narrow(0, 0, 1)))) << "a view writes there, too";
  EXPECT_FALSE(leaves_.Has(StorageOf(at::ones({3}))));
  leaves_.Clear();
  EXPECT_FALSE(leaves_.Has(StorageOf(leaf_)));
}

TEST_F(PassLeavesTest, MemoryThatIsGoneIsNotTakenForAnother) {
  leaves_.Add(*leaf_.unsafeGetTensorImpl());
  leaf_ = at::Tensor();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(leaves_.Has(StorageOf(at::ones({3}))));
}

TEST_F(PassLeavesTest, TensorWithoutMemoryIsNone) {
  leaves_.Add(*leaf_.unsafeGetTensorImpl());
  EXPECT_FALSE(leaves_.Has(nullptr));
}

// torch exchanges two tensors only where nobody holds them weakly.
TEST_F(PassLeavesTest, HoldsNoTensor) {
  leaves_.Add(*leaf_.unsafeGetTensorImpl());
  EXPECT_EQ(leaf_.use_count(), 1);
  EXPECT_EQ(leaf_.weak_use_count(), 1);
}

TEST_F(PassLeavesTest, KeepsAsManyAsItHasRoomFor) {
  for (uint32_t i = 0; i < PassLeaves::kMax; ++i) leaves_.Add(*at::ones({1}).unsafeGetTensorImpl());
  leaves_.Add(*leaf_.unsafeGetTensorImpl());
  EXPECT_FALSE(leaves_.Has(StorageOf(leaf_)));
}

}  // namespace
}  // namespace nanwatch
