// SPDX-License-Identifier: Apache-2.0
// Which results of the ops that a composite calls are remembered, so that they are looked at once.
#include "shim/observe/thread/checked_results.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

// Addresses that nobody reads.
const c10::TensorImpl* TensorAt(uintptr_t number) {
  return reinterpret_cast<const c10::TensorImpl*>(number << 6);
}

class CheckedResultsTest : public testing::Test {
 protected:
  CheckedResultsTest() {
    composite_.transparent = true;
    frame_.op = &composite_;
  }
  void Record(uintptr_t first, uintptr_t last) {
    for (uintptr_t i = first; i <= last; ++i) RecordChecked(&frame_, TensorAt(i));
  }
  [[nodiscard]] bool Was(uintptr_t number) const {
    return WasCheckedByChild(frame_, TensorAt(number));
  }

  OpTraits composite_{};
  Frame frame_{};
};

TEST_F(CheckedResultsTest, NoneIsKnownAtFirst) {
  EXPECT_FALSE(Was(1));
  EXPECT_FALSE(WasCheckedByChild(frame_, nullptr)) << "an empty place is no tensor";
}

TEST_F(CheckedResultsTest, ThoseThatWereLookedAtAreKnown) {
  Record(1, 2);
  EXPECT_TRUE(Was(1));
  EXPECT_TRUE(Was(2));
  EXPECT_FALSE(Was(3));
}

TEST_F(CheckedResultsTest, WhatStoodInAFrameBeforeItWasUsedAgainIsNotKnown) {
  Record(1, 4);
  frame_.checked_count = 0;  // as when an op begins
  EXPECT_FALSE(Was(1));
  Record(5, 5);
  EXPECT_TRUE(Was(5));
  EXPECT_FALSE(Was(2));
}

TEST_F(CheckedResultsTest, OfManyTheLastFourAreKnown) {
  Record(1, 6);
  EXPECT_FALSE(Was(1));
  EXPECT_FALSE(Was(2));
  for (uintptr_t i = 3; i <= 6; ++i) EXPECT_TRUE(Was(i)) << i;
}

// The count has eight bits.
TEST_F(CheckedResultsTest, TheLastFourAreKnownAfterHowEverMany) {
  for (uintptr_t i = 1; i <= 2000; ++i) {
    Record(i, i);
    for (uintptr_t back = 0; back < 4 && back < i; ++back) ASSERT_TRUE(Was(i - back)) << i;
    if (i > 4) {
      ASSERT_FALSE(Was(i - 4)) << i;
    }
  }
}

TEST_F(CheckedResultsTest, AnOpThatComputesItselfRemembersNothing) {
  composite_.transparent = false;
  Record(1, 1);
  EXPECT_FALSE(Was(1));
}

TEST_F(CheckedResultsTest, AnOpThatTheProgramCallsHasNobodyToTell) {
  RecordChecked(nullptr, TensorAt(1));
  EXPECT_FALSE(Was(1));
}

}  // namespace
}  // namespace nanwatch
