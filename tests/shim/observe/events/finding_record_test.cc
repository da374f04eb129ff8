// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/finding_record.h"

#include <gtest/gtest.h>

#include <memory>

#include "shim/observe/python/python_bridge.h"
#include "shim/observe/torch/op_table.h"
#include "tests/shim/observe/events/observed_process.h"

namespace nanwatch {
namespace {

using wire::ValueRecord;

class FindingRecordsTest : public testing::Test {
 protected:
  FindingRecordsTest() { clock_.clocks.passes = 5; }

  // A value of the site `site` that came of `sources`.
  ValueRef File(uint64_t ticket, bool write, const Sources& sources = {}, uint32_t flags = 0) {
    draft_ = Draft{};
    draft_.value.header = records_.MakeHeader(thread_.get(), emitter_, wire::RecordKind::kValue, 0);
    draft_.value.header.ticket = ticket;
    draft_.value.flags = flags;
    draft_.value.n_sources = static_cast<uint8_t>(sources.count);
    for (int i = 0; i < sources.count; ++i) draft_.value.sources[i] = sources.list[i];
    return records_.File(emitter_, draft_, sources, SiteKey{}, write, /*is_new_site=*/false);
  }
  static Sources From(ValueRef value) {
    Sources sources;
    wire::Source source{};
    source.kind = static_cast<uint8_t>(wire::SourceKind::kValue);
    source.value = value.ticket;
    sources.Add(source, value.index);
    return sources;
  }
  // Tickets of all records in the ring, in their order.
  std::vector<uint64_t> Emitted() {
    MappedSegment mapped(process_.place());
    auto reader = mapped.Read<wire::RingReader>(wire::SectionType::kFindings);
    std::vector<uint64_t> tickets;
    while (reader.Read(copy_, wire::Holes::kWait) == wire::RingRead::kRecord) {
      tickets.push_back(copy_.header().ticket);
      flags_ = reinterpret_cast<const ValueRecord*>(copy_.bytes)->flags;
    }
    return tickets;
  }

  ObservedProcess process_;
  RecordingLevel level_;
  ProcessSegment& segment_ = *new ProcessSegment(process_.entry(), level_);
  Emitter& emitter_ = *segment_.Ensure();
  RecentValues& recent_ = *new RecentValues;
  PythonBridge& python_ = *new PythonBridge({});
  FixedClock clock_;
  FindingRecords records_{segment_, recent_, python_, clock_};
  std::unique_ptr<ThreadState> thread_ = std::make_unique<ThreadState>();
  Draft draft_;
  wire::RecordCopy copy_;
  uint32_t flags_ = 0;
};

using Tickets = std::vector<uint64_t>;

TEST_F(FindingRecordsTest, StampsAHeadWithTheThreadTheClocksAndATicketOfItsOwn) {
  thread_->small_id = 3;
  const auto first = records_.MakeHeader(thread_.get(), emitter_, wire::RecordKind::kPass, 96);
  const auto second = records_.MakeHeader(thread_.get(), emitter_, wire::RecordKind::kPass, 96);
  EXPECT_EQ(first.kind, static_cast<uint16_t>(wire::RecordKind::kPass));
  EXPECT_EQ(first.bytes, 96u);
  EXPECT_EQ(first.thread, 3u);
  EXPECT_EQ(first.clocks.passes, 5u);
  EXPECT_EQ(second.ticket, first.ticket + 1);
  EXPECT_GE(second.time_ns, first.time_ns);
}

TEST_F(FindingRecordsTest, StampsWhatIsResolvedLaterWithTheMomentAndTheThreadOfItsOp) {
  ThreadState& of_op = *new ThreadState;
  of_op.small_id = 9;
  Moment moment;
  moment.thread = &of_op;
  moment.time_ns = 12345;
  thread_->told = &moment;
  const auto head = records_.MakeHeader(thread_.get(), emitter_, wire::RecordKind::kValue, 0);
  EXPECT_EQ(head.thread, 9u);
  EXPECT_EQ(head.time_ns, 12345u);
}

TEST_F(FindingRecordsTest, EmitsAValueThatIsToBeWrittenAtOnce) {
  (void)File(11, /*write=*/true);
  EXPECT_EQ(Emitted(), Tickets({11}));
}

TEST_F(FindingRecordsTest, HoldsOthersBackUntilSomethingComesOfThem) {
  const ValueRef held = File(11, /*write=*/false);
  EXPECT_EQ(Emitted(), Tickets({}));
  records_.WriteAncestors(held);
  EXPECT_EQ(Emitted(), Tickets({11}));
  EXPECT_NE(flags_ & ValueRecord::kLate, 0u);
}

TEST_F(FindingRecordsTest, WritesAWholeChainAndEachOfItOnce) {
  const ValueRef first = File(11, /*write=*/false);
  const ValueRef second = File(12, /*write=*/false, From(first));
  const ValueRef third = File(13, /*write=*/false, From(second));
  records_.WriteAncestors(third);
  EXPECT_EQ(Emitted(), Tickets({13, 12, 11}));
  records_.WriteAncestors(second);
  records_.WriteAncestors(third);
  EXPECT_EQ(Emitted(), Tickets({13, 12, 11}));
}

TEST_F(FindingRecordsTest, LeavesOutOfAChainWhatWasWrittenAlready) {
  const ValueRef first = File(11, /*write=*/true);
  const ValueRef second = File(12, /*write=*/false, From(first));
  records_.WriteAncestors(second);
  EXPECT_EQ(Emitted(), Tickets({11, 12}));
}

TEST_F(FindingRecordsTest, WritesTheFiguresThatWereKeptWithAValue) {
  draft_ = Draft{};
  draft_.value.header = records_.MakeHeader(thread_.get(), emitter_, wire::RecordKind::kValue, 0);
  draft_.value.n_outputs = 1;
  draft_.tensors[0].nan = 42;
  const ValueRef held = records_.File(emitter_, draft_, {}, SiteKey{}, false, false);
  records_.WriteAncestors(held);
  ASSERT_EQ(Emitted().size(), 1u);
  ASSERT_EQ(copy_.header().bytes, sizeof(ValueRecord) + sizeof(wire::TensorStats));
  const auto* stats = reinterpret_cast<const wire::TensorStats*>(copy_.bytes + sizeof(ValueRecord));
  EXPECT_EQ(stats->nan, 42u);
}

TEST_F(FindingRecordsTest, TakesAParameterThatIsWrittenForAReasonToWriteWhatItCameFrom) {
  const ValueRef first = File(11, /*write=*/false);
  const ValueRef second = File(12, /*write=*/true, From(first));
  ValueRecord record = draft_.value;
  records_.RecordReachOf(emitter_, record, second);
  EXPECT_EQ(Emitted(), Tickets({12})) << "an activation is no reason";
  record.flags |= ValueRecord::kWroteParameter;
  records_.RecordReachOf(emitter_, record, second);
  EXPECT_EQ(Emitted(), Tickets({12, 11}));
}

TEST_F(FindingRecordsTest, MakesOneSiteOfTheSameOpInTheSameLayer) {
  Layer layer;
  layer.path = "head";
  Location place{wire::Phase::kForward, &layer, "", 0, 0};
  const auto site = [&](uint32_t op) {
    bool is_new = false;
    const SiteKey key = records_.MakeKey(thread_.get(), emitter_, place, op,
                                         wire::FindingClass::kProduce, wire::kHasNan, 1, 0, 0);
    return records_.InternSite(thread_.get(), emitter_, key, &is_new);
  };
  const uint32_t log = emitter_.Intern("aten::log");
  const uint32_t first = site(log);
  EXPECT_EQ(site(log), first);
  EXPECT_NE(site(emitter_.Intern("aten::sqrt")), first);
  place.layer = nullptr;
  EXPECT_NE(site(log), first);
}

}  // namespace
}  // namespace nanwatch
