// SPDX-License-Identifier: Apache-2.0
#include "shim/classify/recent_values.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>

namespace nanwatch {
namespace {

// The table is half a dozen MiB once it is used: not on the stack of a test, and not in the object
// itself.
class RecentValuesTest : public testing::Test {
 protected:
  static RecentValues::Kept ValueOf(uint64_t ticket) {
    RecentValues::Kept kept{};
    kept.record.header.ticket = ticket;
    kept.op = static_cast<uint32_t>(ticket) + 7;
    return kept;
  }

  RecentValues values_;
  RecentValues::Kept found_{};
};

TEST_F(RecentValuesTest, FindsNothingBeforeTheFirstValue) {
  EXPECT_FALSE(values_.Look({1, 1}, &found_));
  EXPECT_FALSE(values_.Trace({1, 1}, &found_));
}

TEST_F(RecentValuesTest, GivesAValueBackByItsReference) {
  const ValueRef first = values_.Add(ValueOf(100));
  const ValueRef second = values_.Add(ValueOf(200));
  EXPECT_EQ(first.ticket, 100u);
  EXPECT_EQ(second.ticket, 200u);
  EXPECT_NE(first.index, second.index);
  ASSERT_TRUE(values_.Look(first, &found_));
  EXPECT_EQ(found_.record.header.ticket, 100u);
  EXPECT_EQ(found_.op, 107u);
  ASSERT_TRUE(values_.Look(second, &found_));
  EXPECT_EQ(found_.record.header.ticket, 200u);
}

TEST_F(RecentValuesTest, NeverHandsOutTheReferenceThatStandsForNothing) {
  EXPECT_NE(values_.Add(ValueOf(1)).index, 0u);
  EXPECT_FALSE(values_.Look(ValueRef{}, &found_));
  EXPECT_FALSE(values_.Trace(ValueRef{}, &found_));
}

TEST_F(RecentValuesTest, KnowsNoValueThatIsStillToCome) {
  const ValueRef newest = values_.Add(ValueOf(1));
  EXPECT_FALSE(values_.Look({2, newest.index + 1}, &found_));
  EXPECT_FALSE(values_.Look({2, newest.index + RecentValues::kCapacity}, &found_));
}

TEST_F(RecentValuesTest, LookingLeavesAValueUnwrittenAndUntraced) {
  const ValueRef ref = values_.Add(ValueOf(1));
  ASSERT_TRUE(values_.Look(ref, &found_));
  ASSERT_TRUE(values_.Look(ref, &found_));
  EXPECT_FALSE(found_.written);
  EXPECT_FALSE(found_.traced);
}

TEST_F(RecentValuesTest, TracingSaysHowItWasAndMarksItOnce) {
  const ValueRef ref = values_.Add(ValueOf(1));
  ASSERT_TRUE(values_.Trace(ref, &found_));
  EXPECT_FALSE(found_.written) << "the first tracer is the one that writes it";
  EXPECT_FALSE(found_.traced);
  ASSERT_TRUE(values_.Trace(ref, &found_));
  EXPECT_TRUE(found_.written);
  EXPECT_TRUE(found_.traced);
  ASSERT_TRUE(values_.Look(ref, &found_));
  EXPECT_TRUE(found_.traced);
}

TEST_F(RecentValuesTest, TracingTellsAWrittenValueWhoseSourcesAreNot) {
  RecentValues::Kept kept = ValueOf(1);
  kept.written = true;
  const ValueRef ref = values_.Add(kept);
  ASSERT_TRUE(values_.Trace(ref, &found_));
  EXPECT_TRUE(found_.written);
  EXPECT_FALSE(found_.traced);
}

TEST_F(RecentValuesTest, TracingOneValueLeavesItsNeighboursAlone) {
  const ValueRef before = values_.Add(ValueOf(1));
  const ValueRef traced = values_.Add(ValueOf(2));
  const ValueRef after = values_.Add(ValueOf(3));
  ASSERT_TRUE(values_.Trace(traced, &found_));
  for (const ValueRef& other : {before, after}) {
    ASSERT_TRUE(values_.Look(other, &found_));
    EXPECT_FALSE(found_.traced);
  }
}

TEST_F(RecentValuesTest, KeepsExactlyTheNewestAndRefusesTheOverwritten) {
  const ValueRef first = values_.Add(ValueOf(1));
  const ValueRef second = values_.Add(ValueOf(2));
  for (uint64_t i = 2; i < RecentValues::kCapacity; ++i) values_.Add(ValueOf(i + 1));
  ASSERT_TRUE(values_.Look(first, &found_)) << "as many as the capacity fit";
  const ValueRef newest = values_.Add(ValueOf(9'999'999));
  EXPECT_FALSE(values_.Look(first, &found_));
  EXPECT_FALSE(values_.Trace(first, &found_));
  ASSERT_TRUE(values_.Look(second, &found_));
  EXPECT_EQ(found_.record.header.ticket, 2u);
  ASSERT_TRUE(values_.Look(newest, &found_));
  EXPECT_EQ(found_.record.header.ticket, 9'999'999u);
}

TEST_F(RecentValuesTest, RefusingAnOverwrittenValueMarksNotTheOneInItsPlace) {
  const ValueRef first = values_.Add(ValueOf(1));
  ValueRef newest;
  for (uint64_t i = 0; i < RecentValues::kCapacity; ++i) newest = values_.Add(ValueOf(i + 2));
  EXPECT_FALSE(values_.Trace(first, &found_));
  ASSERT_TRUE(values_.Look(newest, &found_));
  EXPECT_FALSE(found_.traced);
  EXPECT_FALSE(found_.written);
}

// What stands behind a value, in a few words: its class and the values that it came from.
class GivenValuesTest : public RecentValuesTest {
 protected:
  ValueRef Add(wire::FindingClass finding_class, std::initializer_list<ValueRef> sources = {}) {
    RecentValues::Kept kept = ValueOf(++ticket_);
    kept.finding_class = finding_class;
    for (const ValueRef& source : sources) {
      kept.source_index[kept.record.n_sources] = source.index;
      wire::Source& told = kept.record.sources[kept.record.n_sources++];
      told.kind = static_cast<uint8_t>(wire::SourceKind::kValue);
      told.value = source.ticket;
    }
    return values_.Add(kept);
  }

  ValueRef AddFromOutside() {
    RecentValues::Kept kept = ValueOf(++ticket_);
    kept.finding_class = wire::FindingClass::kPropagate;
    kept.record.n_sources = 1;
    kept.record.sources[0].kind = static_cast<uint8_t>(wire::SourceKind::kExternal);
    return values_.Add(kept);
  }

  uint64_t ticket_ = 0;
};

TEST_F(GivenValuesTest, ConstantThatWasCopiedIsStillAConstant) {
  const ValueRef constant = Add(wire::FindingClass::kScalar);
  const ValueRef copy = Add(wire::FindingClass::kPropagate, {constant});
  EXPECT_TRUE(values_.WasGiven(constant, false));
  EXPECT_TRUE(values_.WasGiven(Add(wire::FindingClass::kPropagate, {copy, constant}), false));
}

TEST_F(GivenValuesTest, WhatCameInCountsOnlyWhereItIsAskedFor) {
  for (const ValueRef& came_in : {Add(wire::FindingClass::kExternal), AddFromOutside()}) {
    EXPECT_TRUE(values_.WasGiven(came_in, true));
    EXPECT_FALSE(values_.WasGiven(came_in, false));
    EXPECT_TRUE(values_.WasGiven(Add(wire::FindingClass::kPropagate, {came_in}), true));
    EXPECT_FALSE(values_.WasGiven(Add(wire::FindingClass::kPropagate, {came_in}), false));
  }
}

TEST_F(GivenValuesTest, ValueWithOneMadeByAnOpAmongItsSourcesWasMade) {
  const ValueRef constant = Add(wire::FindingClass::kScalar);
  for (const auto made : {wire::FindingClass::kProduce, wire::FindingClass::kInfToNan}) {
    const ValueRef value = Add(made, {constant});
    EXPECT_FALSE(values_.WasGiven(value, true));
    EXPECT_FALSE(values_.WasGiven(Add(wire::FindingClass::kPropagate, {constant, value}), true));
  }
}

TEST_F(GivenValuesTest, ValueWhoseWayIsNotKnownIsNotCalledGiven) {
  EXPECT_FALSE(values_.WasGiven(ValueRef{}, true));
  EXPECT_FALSE(values_.WasGiven(Add(wire::FindingClass::kPropagate), true)) << "no source was seen";
  const ValueRef constant = Add(wire::FindingClass::kScalar);
  const ValueRef copy = Add(wire::FindingClass::kPropagate, {constant});
  for (uint64_t i = 1; i < RecentValues::kCapacity; ++i) Add(wire::FindingClass::kScalar);
  EXPECT_FALSE(values_.WasGiven(copy, true)) << "the constant has been overwritten by newer values";
}

TEST_F(GivenValuesTest, MoreAncestorsThanAreFollowedAreNotCalledGiven) {
  ValueRef value = Add(wire::FindingClass::kScalar);
  for (int i = 0; i < 100; ++i) value = Add(wire::FindingClass::kPropagate, {value});
  EXPECT_FALSE(values_.WasGiven(value, true));
}

TEST_F(RecentValuesTest, GivesTheTensorsOfAValueBackWhileTheyAreAmongTheNewest) {
  const auto keep = [this](uint64_t ticket) {
    wire::TensorStats tensors[2] = {};
    tensors[0].nan = ticket;
    tensors[1].pos_inf = ticket;
    values_.KeepTensors(ticket, tensors, 2);
  };
  wire::TensorStats copied[2] = {};
  EXPECT_FALSE(values_.CopyTensors(1, copied, 2));
  for (uint64_t ticket = 1; ticket <= RecentValues::kDescribed; ++ticket) keep(ticket);
  ASSERT_TRUE(values_.CopyTensors(1, copied, 2));
  EXPECT_EQ(copied[0].nan, 1u);
  EXPECT_EQ(copied[1].pos_inf, 1u);
  keep(RecentValues::kDescribed + 1);
  EXPECT_FALSE(values_.CopyTensors(1, copied, 2));
  EXPECT_TRUE(values_.CopyTensors(2, copied, 2));
  EXPECT_FALSE(values_.CopyTensors(0, copied, 2));
}

}  // namespace
}  // namespace nanwatch
