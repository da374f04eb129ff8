// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/loss_roots.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TEST(LossRoots, KnowAnOpByItsLayer) {
  LossRoots roots;
  EXPECT_FALSE(roots.Has(1, 2));
  roots.Record(1, 2);
  EXPECT_TRUE(roots.Has(1, 2));
  EXPECT_FALSE(roots.Has(1, 3));
  EXPECT_FALSE(roots.Has(2, 2));
}

TEST(LossRoots, TakeNoMoreThanThereIsRoomForAndKeepWhatTheyHave) {
  LossRoots roots;
  for (uint32_t op = 0; op < 40; ++op) roots.Record(op, 0);
  EXPECT_TRUE(roots.Has(0, 0));
  EXPECT_TRUE(roots.Has(31, 0));
  EXPECT_FALSE(roots.Has(32, 0));
}

TEST(LossRoots, SpendNoRoomOnOneThatIsKnown) {
  LossRoots roots;
  for (int i = 0; i < 40; ++i) roots.Record(1, 0);
  roots.Record(2, 0);
  EXPECT_TRUE(roots.Has(2, 0));
}

}  // namespace
}  // namespace nanwatch
