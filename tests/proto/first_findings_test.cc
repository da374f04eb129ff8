// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/first_findings.h"

#include <gtest/gtest.h>

#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

Clocks ClocksAfter(uint32_t passes) {
  Clocks clocks{};
  clocks.passes = passes;
  return clocks;
}

class FirstFindings : public testing::Test {
 protected:
  FirstFinding* findings() { return memory_.as<FirstFinding>(); }
  FirstReach* reaches() { return reinterpret_cast<FirstReach*>(findings() + kFirstFindingsMax); }
  bool Keep(uint64_t ticket, size_t bytes) {
    const std::vector<uint64_t> record = MakeRecord(1, ticket, bytes);
    return writer_.Keep(*reinterpret_cast<const RecordHeader*>(record.data()));
  }

  SharedMemory memory_{kFirstFindingsMax * sizeof(FirstFinding) + kReachKinds * sizeof(FirstReach)};
  FirstWriter writer_{findings(), reaches()};
};

TEST_F(FirstFindings, KeepsTheFirstSixtyFourAndNoneAfter) {
  for (uint64_t ticket = 1; ticket <= kFirstFindingsMax; ++ticket) {
    ASSERT_TRUE(Keep(ticket, SizeOf(ticket * 17)));
  }
  EXPECT_FALSE(Keep(65, 128));
  RecordCopy copy;
  for (int i = 0; i < kFirstFindingsMax; ++i) {
    ASSERT_TRUE(ReadFirstFinding(findings()[i], copy));
    EXPECT_EQ(copy.header().ticket, static_cast<uint64_t>(i) + 1);
    EXPECT_TRUE(IsWhole(copy));
  }
}

TEST_F(FirstFindings, HasRoomForTheLongestRecordAndRefusesLongerOnes) {
  EXPECT_TRUE(Keep(1, kRecordBytesMax));
  EXPECT_FALSE(Keep(2, kRecordBytesMax + 8));
  RecordCopy copy;
  ASSERT_TRUE(ReadFirstFinding(findings()[0], copy));
  EXPECT_TRUE(IsWhole(copy));
  EXPECT_FALSE(ReadFirstFinding(findings()[1], copy));
}

TEST_F(FirstFindings, ReaderRefusesUnfinishedAndMalformedPlaces) {
  ASSERT_TRUE(Keep(1, 128));
  auto* header = reinterpret_cast<RecordHeader*>(findings()[0].record);
  RecordCopy copy;
  findings()[0].state = kEntryBeingWritten;
  EXPECT_FALSE(ReadFirstFinding(findings()[0], copy));
  findings()[0].state = kEntryComplete;
  header->bytes = kRecordBytesMax + 1;
  EXPECT_FALSE(ReadFirstFinding(findings()[0], copy));
  header->bytes = 0;
  EXPECT_FALSE(ReadFirstFinding(findings()[0], copy));
  header->bytes = 128;
  header->kind = kRecordKindMax + 1;
  EXPECT_FALSE(ReadFirstFinding(findings()[0], copy));
}

TEST_F(FirstFindings, NotesEachReachOnceTheFirstTime) {
  const Clocks first = ClocksAfter(1);
  const Clocks second = ClocksAfter(2);
  EXPECT_FALSE(ReadFirstReach(reaches()[1]).has_value());
  writer_.Reached(Reach::kLoss, 10, 20, 30, first);
  writer_.Reached(Reach::kLoss, 11, 21, 31, second);
  writer_.Reached(Reach::kParameter, 12, 22, 32, second);
  writer_.Reached(static_cast<Reach>(kReachKinds), 1, 1, 1, first);
  const std::optional<ReachFacts> loss = ReadFirstReach(reaches()[1]);
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->value, 10u);
  EXPECT_EQ(loss->ticket, 20u);
  EXPECT_EQ(loss->name, 30u);
  EXPECT_EQ(loss->clocks.passes, 1u);
  EXPECT_EQ(ReadFirstReach(reaches()[3])->value, 12u);
  EXPECT_FALSE(ReadFirstReach(reaches()[2]).has_value());
}

}  // namespace
}  // namespace nanwatch::wire
