// SPDX-License-Identifier: Apache-2.0
#include "shim/emit/emitter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "tests/shim/emit/segment_view.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

class EmitterTest : public testing::Test {
 protected:
  uint32_t SiteFor(const SiteKey& key) {
    bool is_new = false;
    return emitter_.InternSite(key, nullptr, nullptr, &is_new);
  }
  wire::LiveCopy Live() { return wire::ReadLive(segment_.live()); }

  SegmentPlace place_;
  Segment& segment_ = *place_.Create();
  Emitter& emitter_ = *new Emitter(segment_);  // leaked, as in the job
  wire::RecordCopy copy_;
};

TEST_F(EmitterTest, DrawsEachTicketOnceFromOne) {
  EXPECT_EQ(emitter_.DrawTicket(), 1u);
  EXPECT_EQ(emitter_.DrawTicket(), 2u);
  std::vector<uint64_t> drawn[3];
  std::vector<std::thread> threads;
  for (auto& own : drawn) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) own.push_back(emitter_.DrawTicket());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint64_t> all;
  for (const auto& own : drawn) all.insert(own.begin(), own.end());
  EXPECT_EQ(all.size(), 3000u);
  EXPECT_EQ(*all.begin(), 3u);
  EXPECT_EQ(*all.rbegin(), 3002u);
  EXPECT_EQ(Live().tickets, 3002u);
}

TEST_F(EmitterTest, CountsNamesThatFindTheTableFull) {
  for (int i = 0; i < 32; ++i) ASSERT_NE(emitter_.Intern("n" + std::to_string(i)), 0u);
  EXPECT_EQ(emitter_.Intern("more"), 0u);
  EXPECT_EQ(emitter_.Intern("even more"), 0u);
  EXPECT_EQ(emitter_.Intern(""), 0u);
  EXPECT_EQ(emitter_.Intern("n3"), 4u);
  EXPECT_EQ(Live().names_dropped, 2u);
  EXPECT_EQ(NameOf(segment_, 4), "n3");
}

TEST_F(EmitterTest, AsksForASourceLineWhereAPlaceIsNewAndLetsItCallBack) {
  struct Context {
    Emitter* emitter;
    int asked = 0;
  } context{&emitter_};
  const auto make_source = [](void* opaque) {
    auto* from = static_cast<Context*>(opaque);
    ++from->asked;
    (void)from->emitter->Intern("model.py");  // it may
    return SourceLine{"model.py:41 in forward"};
  };
  bool is_new = false;
  const SiteKey key{.op = emitter_.Intern("aten::mm")};
  const uint32_t site = emitter_.InternSite(key, make_source, &context, &is_new);
  EXPECT_TRUE(is_new);
  EXPECT_EQ(emitter_.InternSite(key, make_source, &context, &is_new), site);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(context.asked, 1);
  EXPECT_EQ(NameOf(segment_, SiteOf(segment_, site)->source), "model.py:41 in forward");
}

TEST_F(EmitterTest, CountsPlacesThatFindTheTableFullAndKeepsCountingTheOthers) {
  for (uint32_t i = 1; i <= 16; ++i) ASSERT_EQ(SiteFor({.op = i}), i);
  EXPECT_EQ(SiteFor({.op = 17}), 0u);
  EXPECT_EQ(emitter_.CountSite(0, 1, {}), 1u) << "all without a place count as one, so that";
  EXPECT_EQ(emitter_.CountSite(0, 2, {}), 2u) << "a storm of them is written as one of a place";
  EXPECT_EQ(emitter_.CountSite(5, 1, {}), 1u);
  EXPECT_EQ(emitter_.CountSite(5, 2, {}), 2u);
  EXPECT_EQ(Live().sites_dropped, 1u);
  EXPECT_EQ(SiteOf(segment_, 5)->count, 2u);
}

TEST_F(EmitterTest, AFindingWithNeitherSiteNorRecordIsCountedAsDropped) {
  emitter_.SkipRecord(5);
  EXPECT_EQ(Live().values_dropped, 0u) << "its site counts it";
  emitter_.SkipRecord(0);
  EXPECT_EQ(Live().values_dropped, 1u);
}

TEST_F(EmitterTest, PublishesRecordsAndTheirStatistics) {
  struct {
    wire::ValueRecord value;
    wire::TensorStats output;
  } whole{ValueOf(3, 7), {}};
  whole.value.header.bytes = sizeof whole;
  whole.value.n_outputs = 1;
  whole.output.nan = 12;
  ASSERT_TRUE(emitter_.Emit(whole.value.header));
  wire::RingReader reader = FindingsIn(segment_);
  ASSERT_EQ(reader.Read(copy_, wire::Holes::kWait), wire::RingRead::kRecord);
  EXPECT_EQ(std::memcmp(copy_.bytes, &whole, sizeof whole), 0);
}

TEST_F(EmitterTest, LosesNoFirstFindingNoTotalAndNoCountInTenMillionRecordsThatNobodyReads) {
  constexpr uint64_t kRecords = 10'000'000;
  const uint32_t site = SiteFor({.op = 1});
  wire::RecordHeader small{};
  small.kind = static_cast<uint16_t>(wire::RecordKind::kKill);
  small.bytes = sizeof small;
  emitter_.KeepFirst(ValueOf(site, 1));
  uint64_t published = 0;
  for (uint64_t i = 1; i <= kRecords; ++i) {
    small.ticket = i;
    published += emitter_.Emit(small) ? 1 : 0;
    if (i % 1000 == 0) emitter_.CountSite(site, i, {});
  }
  EXPECT_EQ(published, segment_.layout().ring_slots / wire::SlotsFor(sizeof small));
  EXPECT_EQ(FindingsIn(segment_).Dropped(), kRecords - published);
  EXPECT_EQ(Live().values_dropped, kRecords - published);
  EXPECT_EQ(SiteOf(segment_, site)->count, kRecords / 1000);
  ASSERT_TRUE(wire::ReadFirstFinding(segment_.first()[0], copy_));
  EXPECT_EQ(copy_.header().ticket, 1u);
  wire::RingReader reader = FindingsIn(segment_);
  for (uint64_t ticket = 1; ticket <= published; ++ticket) {
    ASSERT_EQ(reader.Read(copy_, wire::Holes::kWait), wire::RingRead::kRecord);
    ASSERT_EQ(copy_.header().ticket, ticket) << "the newest are dropped, not the oldest";
  }
}

TEST_F(EmitterTest, KeepsOneFindingForEachOpLayerClassAndPhase) {
  SiteKey key{.op = 1, .layer = 2, .phase = wire::Phase::kForward};
  emitter_.KeepFirst(ValueOf(SiteFor(key), 1));
  key.kinds = wire::kHasNan;  // another site, but the same finding
  emitter_.KeepFirst(ValueOf(SiteFor(key), 2));
  key.phase = wire::Phase::kBackward;
  emitter_.KeepFirst(ValueOf(SiteFor(key), 3));
  key.layer = 3;
  emitter_.KeepFirst(ValueOf(SiteFor(key), 4));
  for (const uint64_t ticket : {1, 3, 4}) {
    const int place = ticket == 1 ? 0 : static_cast<int>(ticket) - 2;
    ASSERT_TRUE(wire::ReadFirstFinding(segment_.first()[place], copy_));
    EXPECT_EQ(copy_.header().ticket, ticket);
  }
  EXPECT_FALSE(wire::ReadFirstFinding(segment_.first()[3], copy_));
}

TEST_F(EmitterTest, KeepsFindingsAlsoOfPlacesThatFoundTheTableFull) {
  for (uint64_t ticket = 1; ticket <= 70; ++ticket) emitter_.KeepFirst(ValueOf(0, ticket));
  ASSERT_TRUE(wire::ReadFirstFinding(segment_.first()[63], copy_));
  EXPECT_EQ(copy_.header().ticket, 64u);
}

TEST_F(EmitterTest, NotesAReachTheFirstTime) {
  emitter_.RecordReach(wire::Reach::kGradient, 5, 6, 7, {});
  emitter_.RecordReach(wire::Reach::kGradient, 8, 9, 10, {});
  EXPECT_EQ(wire::ReadFirstReach(segment_.reach()[2])->value, 5u);
}

TEST_F(EmitterTest, PublishesStepsAndTheLiveBlockWithAHeartbeat) {
  wire::StepEntry step{};
  step.loss = 0.25;
  wire::TelemetryEntry telemetry{};
  emitter_.PublishStep(step, telemetry);
  EXPECT_EQ(telemetry.known, 0u) << "nothing was measured yet";
  wire::StepReader steps = Steps(segment_);
  wire::StepEntry read{};
  ASSERT_TRUE(steps.Read(read));
  EXPECT_EQ(read.loss, 0.25);

  LiveFacts facts;
  facts.ops_seen = 3;
  facts.state = wire::LiveState::kWatching;
  emitter_.PublishLive(facts);
  const uint64_t heartbeat = Live().heartbeat_ns;
  EXPECT_GE(heartbeat, segment_.header().started_monotonic_ns);
  emitter_.PublishLive(facts);
  EXPECT_GT(Live().heartbeat_ns, heartbeat);
  EXPECT_EQ(Live().facts.ops_seen, 3u);

  facts.overhead = {.percent = 2.5, .low = 2, .high = 3, .pairs = 4};
  emitter_.PublishLive(facts);
  emitter_.PublishStep(step, telemetry);
  EXPECT_EQ(telemetry.known, uint32_t{wire::TelemetryEntry::kOverhead});
  EXPECT_EQ(telemetry.overhead_percent, 2.5f);
}

TEST_F(EmitterTest, EndsWithARecordAndAState) {
  LiveFacts facts;
  facts.clocks.passes = 9;
  emitter_.PublishLive(facts);
  emitter_.End(wire::EndRecord::How::kExit);
  wire::RingReader reader = FindingsIn(segment_);
  ASSERT_EQ(reader.Read(copy_, wire::Holes::kWait), wire::RingRead::kRecord);
  EXPECT_EQ(copy_.header().kind, static_cast<uint16_t>(wire::RecordKind::kEnd));
  EXPECT_EQ(copy_.header().ticket, 1u);
  EXPECT_EQ(copy_.header().clocks.passes, 9u);
  EXPECT_EQ(Live().facts.state, wire::LiveState::kExited);
}

TEST_F(EmitterTest, InAForkedChildAnotherOneWritesToItsOwnSegment) {
  emitter_.DrawTicket();
  const std::string child = InChild([&]() -> std::string {
    Segment* own = place_.Create();
    auto* emitter = new Emitter(*own);
    const uint64_t first = emitter->DrawTicket();
    (void)emitter->Emit(ValueOf(0, first).header);
    return std::to_string(first);
  });
  EXPECT_EQ(child, "1");
  EXPECT_EQ(FindingsIn(segment_).Read(copy_, wire::Holes::kWait), wire::RingRead::kEmpty);
  EXPECT_EQ(emitter_.DrawTicket(), 2u);
}

TEST_F(EmitterTest, SnapshotsOfTwoThreadsDoNotMix) {
  Segment& segment = *SegmentPlace().Create(kSegmentLayout);
  Emitter& emitter = *new Emitter(segment);
  uint64_t cursor = 0;
  for (uint64_t round = 0; round < 50; ++round) {
    std::atomic<int> ready{0};
    const auto publish = [&](uint32_t optimizer) {
      std::vector<wire::StatsParameter> parameters(emitter.stats_parameters_max());
      for (wire::StatsParameter& parameter : parameters) parameter.position = optimizer;
      wire::StatsHead head{};
      head.optimizer = optimizer;
      ++ready;
      while (ready < 2) std::this_thread::yield();
      emitter.PublishStats(head, parameters, {}, 1);
    };
    std::thread other(publish, 1);
    publish(2);
    other.join();
    // Opened anew as the daemon does: the first snapshot settles how long the ring is.
    wire::StatsReader reader = *wire::StatsReader::Open(
        segment.stats(), wire::StepRingBytes<wire::StatsEntry>(segment.layout().stats), cursor);
    wire::StatsCopy copy;
    for (uint64_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(reader.Read(copy));
      EXPECT_EQ(copy.snapshot, 2 * round + i);
      ASSERT_EQ(copy.parameters.size(), emitter.stats_parameters_max());
      for (const auto& parameter : copy.parameters)
        ASSERT_EQ(parameter.position, copy.head.optimizer);
    }
    EXPECT_EQ(reader.lost(), 0u);
    cursor = reader.cursor();
  }
}

}  // namespace
}  // namespace nanwatch
