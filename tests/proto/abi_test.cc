// SPDX-License-Identifier: Apache-2.0
// The layout that daemons and jobs of different builds must agree on. A change here is a new
// kWireMajor, unless it only gives a name to bytes that were reserved.
#include <gtest/gtest.h>

#include "proto/wire/segment.h"

namespace nanwatch::wire {
namespace {

TEST(WireLayout, OfTheHeaderIsFixed) {
  EXPECT_EQ(sizeof(SegmentHeader), 2184u);
  EXPECT_EQ(offsetof(SegmentHeader, wire_major), 8u);
  EXPECT_EQ(offsetof(SegmentHeader, file_bytes), 16u);
  EXPECT_EQ(offsetof(SegmentHeader, nonce), 24u);
  EXPECT_EQ(offsetof(SegmentHeader, pid), 64u);
  EXPECT_EQ(offsetof(SegmentHeader, level), 96u);
  EXPECT_EQ(offsetof(SegmentHeader, sections), 104u);
  EXPECT_EQ(offsetof(SegmentHeader, boot_id), 680u);
  EXPECT_EQ(offsetof(SegmentHeader, command), 1152u);
}

TEST(WireLayout, OfTheSectionsIsFixed) {
  EXPECT_EQ(sizeof(LiveBlock), 368u);
  EXPECT_EQ(offsetof(LiveBlock, sequence), 224u);
  EXPECT_EQ(offsetof(LiveBlock, clocks), 232u);
  EXPECT_EQ(offsetof(LiveBlock, tickets), 296u);
  EXPECT_EQ(sizeof(FirstFinding), 1216u);
  EXPECT_EQ(offsetof(SiteEntry, count), 40u);
  EXPECT_EQ(offsetof(SiteEntry, first_clocks), 64u);
  EXPECT_EQ(sizeof(StatsEntry), 128u);
  EXPECT_EQ(offsetof(StatsEntry, payload), 32u);
  EXPECT_EQ(offsetof(StatsHead, parameters), 52u);
  EXPECT_EQ(offsetof(StatsParameter, gradient_mean), 24u);
  EXPECT_EQ(offsetof(StatsParameter, element_type), 88u);
  EXPECT_EQ(offsetof(RingHeader, released_slots), 64u);
  EXPECT_EQ(offsetof(RingHeader, capacity), 128u);
}

TEST(WireLayout, OfRecordsLeavesNoPaddingAndFitsTheSlots) {
  EXPECT_EQ(kRecordBytesMax, 1192u);
  EXPECT_EQ(kRecordSlotsMax, 22u);
  EXPECT_EQ(offsetof(ValueRecord, sources), 88u);
  EXPECT_EQ(offsetof(PassRecord, bad), 112u);
  EXPECT_EQ(offsetof(UpdateRecord, bad), 88u);
  EXPECT_EQ(offsetof(CollectiveRecord, input), 88u);
  for (const size_t bytes :
       {sizeof(ValueRecord), sizeof(KillRecord), sizeof(PassRecord), sizeof(UpdateRecord),
        sizeof(ScalerRecord), sizeof(EscapeRecord), sizeof(CollectiveRecord), sizeof(EndRecord)}) {
    EXPECT_EQ(bytes % 8, 0u);
    EXPECT_LE(bytes, kRecordBytesMax);
  }
}

}  // namespace
}  // namespace nanwatch::wire
