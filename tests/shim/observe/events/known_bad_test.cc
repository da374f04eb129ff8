// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/known_bad.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class KnownBadTest : public testing::Test {
 protected:
  void Remember(const at::Tensor& tensor, const Written& written = {}, bool in_optimizer = false) {
    const BadOutput output{ObservedTraining::Plain(tensor), 0, false};
    on_.known_bad.Remember(&output, 1,
                           {.value = {5, 1},
                            .site = 2,
                            .written = written,
                            .in_optimizer = in_optimizer,
                            .count_elements = true});
  }
  BadEntry EntryOf(const at::Tensor& tensor) {
    BadEntry entry;
    EXPECT_TRUE(on_.known_bad.Find(ObservedTraining::Plain(tensor), &entry));
    return entry;
  }

  ObservedTraining on_;
  at::Tensor bad_ = at::full({4}, kNan);
  wire::Source source_{};
  ValueRef value_;
};

TEST_F(KnownBadTest, KnowNothingOfMemoryThatNobodyRemembered) {
  EXPECT_FALSE(on_.known_bad.SourceOf(ObservedTraining::Plain(bad_), &source_, &value_));
}

TEST_F(KnownBadTest, NameTheValueThatLiesThere) {
  Remember(bad_);
  ASSERT_TRUE(on_.known_bad.SourceOf(ObservedTraining::Plain(bad_), &source_, &value_));
  EXPECT_EQ(source_.kind, static_cast<uint8_t>(wire::SourceKind::kValue));
  EXPECT_EQ(source_.value, 5u);
  EXPECT_EQ(source_.site, 2u);
  EXPECT_EQ(value_.ticket, 5u);
}

TEST_F(KnownBadTest, CountWhatIsBadThere) {
  bad_[0] = 1;
  Remember(bad_);
  EXPECT_EQ(EntryOf(bad_).elements, 3u);
  EXPECT_EQ(EntryOf(bad_).kinds, wire::kHasNan);
}

TEST_F(KnownBadTest, KnowTheStepAndTheUpdateItIsOf) {
  on_.progress.CompleteSkip();
  on_.progress.Begin(on_.progress.NumberOf(&bad_, "SGD", nullptr));
  Remember(bad_, {}, /*in_optimizer=*/true);
  EXPECT_EQ(EntryOf(bad_).born_step, 1u);
  EXPECT_EQ(EntryOf(bad_).born_range, 1u);
  Remember(bad_);
  EXPECT_EQ(EntryOf(bad_).born_range, 0u);
}

TEST_F(KnownBadTest, GiveTheNameToTheFirstOutputAlone) {
  const at::Tensor second = at::full({4}, kNan);
  const BadOutput outputs[] = {{ObservedTraining::Plain(bad_), 0, false},
                               {ObservedTraining::Plain(second), 1, false}};
  const Written written{.target = wire::Target::kParameter, .name = 9};
  on_.known_bad.Remember(outputs, 2, {.value = {5, 1}, .site = 2, .written = written});
  EXPECT_EQ(EntryOf(bad_).target, wire::Target::kParameter);
  EXPECT_EQ(EntryOf(bad_).name, 9u);
  EXPECT_EQ(EntryOf(second).target, wire::Target::kNone);
  EXPECT_EQ(EntryOf(second).name, 0u);
}

TEST_F(KnownBadTest, TellWhatCameInFromWhatWasMade) {
  on_.known_bad.RememberExternal(
      ObservedTraining::Plain(bad_),
      {.target = wire::Target::kBuffer, .name = 7, .shared_file = 33, .writer_unseen = false});
  ASSERT_TRUE(on_.known_bad.SourceOf(ObservedTraining::Plain(bad_), &source_, &value_));
  EXPECT_EQ(source_.kind, static_cast<uint8_t>(wire::SourceKind::kExternal));
  EXPECT_EQ(source_.target, static_cast<uint8_t>(wire::Target::kBuffer));
  EXPECT_EQ(source_.name, 7u);
  EXPECT_EQ(source_.value, 33u) << "the file that it lies in";
  EXPECT_EQ(value_.ticket, 0u);
}

TEST_F(KnownBadTest, HoldNoMemory) {
  Remember(bad_);
  bad_ = at::Tensor();
  on_.bad_values.Sweep(0);
  EXPECT_EQ(on_.bad_values.size(), 0u);
}

}  // namespace
}  // namespace nanwatch
