// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/ruined_parameters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class RuinedParametersTest : public testing::Test {
 protected:
  // An op has left `tensor`, a parameter or an activation, bad.
  void LeaveBad(const at::Tensor& tensor, uint64_t ticket, wire::Target target) {
    const BadOutput output{ObservedTraining::Plain(tensor), 0, false};
    Written written;
    written.target = target;
    on_.known_bad.Remember(
        &output, 1, {.value = {ticket, 1}, .site = 3, .written = written, .count_elements = true});
  }
  uint64_t TicketAlike(const at::Tensor& tensor) {
    const auto left = ruined_.FindAlike(ObservedTraining::Plain(tensor));
    return left ? left->value.ticket : 0;
  }

  ObservedTraining on_;
  RuinedParameters ruined_;
};

TEST_F(RuinedParametersTest, KnowsNothingBeforeAnyWasRuined) {
  EXPECT_FALSE(ruined_.Newest());
  EXPECT_EQ(TicketAlike(at::full({6}, kNan)), 0u);
}

TEST_F(RuinedParametersTest, AnswersForWhatIsAsLargeAsAParameter) {
  const at::Tensor weight = at::full({2, 3}, kNan);
  LeaveBad(weight, 5, wire::Target::kParameter);
  ruined_.Add(on_.bad_values);
  EXPECT_EQ(TicketAlike(at::full({2, 3}, kNan)), 5u);
  EXPECT_EQ(TicketAlike(at::full({2, 4}, kNan)), 0u);
}

TEST_F(RuinedParametersTest, NotForWhatIsAsLargeAndHasFewerBadElements) {
  const at::Tensor weight = at::full({2, 3}, kNan);
  LeaveBad(weight, 5, wire::Target::kParameter);
  ruined_.Add(on_.bad_values);
  const at::Tensor batch = at::ones({3, 2});
  batch[1] = kNan;
  EXPECT_EQ(TicketAlike(batch), 0u);
}

TEST_F(RuinedParametersTest, NotForWhatIsAsLargeAsAnActivation) {
  const at::Tensor activation = at::full({6}, kNan);
  LeaveBad(activation, 5, wire::Target::kNone);
  ruined_.Add(on_.bad_values);
  EXPECT_EQ(TicketAlike(at::full({6}, kNan)), 0u);
  EXPECT_EQ(ruined_.Newest()->value.ticket, 5u);
}

TEST_F(RuinedParametersTest, NotForASingleNumber) {
  const at::Tensor bias = at::full({1}, kNan);
  LeaveBad(bias, 5, wire::Target::kParameter);
  ruined_.Add(on_.bad_values);
  EXPECT_EQ(TicketAlike(at::full({}, kNan)), 0u);
}

TEST_F(RuinedParametersTest, WhatWasWrittenOverIsBadNoMore) {
  const at::Tensor weight = at::full({6}, kNan);
  LeaveBad(weight, 5, wire::Target::kParameter);
  ruined_.Add(on_.bad_values);
  weight.zero_();
  EXPECT_EQ(TicketAlike(at::full({6}, kNan)), 0u);
}

TEST_F(RuinedParametersTest, WhatIsGoneMayHaveBeenCopied) {
  {
    const at::Tensor weight = at::full({6}, kNan);
    LeaveBad(weight, 5, wire::Target::kParameter);
    ruined_.Add(on_.bad_values);
  }
  EXPECT_EQ(TicketAlike(at::full({6}, kNan)), 5u);
}

TEST_F(RuinedParametersTest, TheNewestOfManyIsMeant) {
  for (uint64_t ticket = 1; ticket <= 300; ++ticket) {
    const at::Tensor weight = at::full({6}, kNan);
    LeaveBad(weight, ticket, wire::Target::kParameter);
    ruined_.Add(on_.bad_values);
    on_.bad_values.Reset();
  }
  EXPECT_EQ(TicketAlike(at::full({6}, kNan)), 300u);
}

}  // namespace
}  // namespace nanwatch
