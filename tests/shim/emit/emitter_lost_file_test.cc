// SPDX-License-Identifier: Apache-2.0
// The segment's file is removed while threads emit: it is made anew, and nothing that was emitted
// is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "shim/emit/emitter.h"
#include "tests/shim/emit/segment_view.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

using Clock = std::chrono::steady_clock;

TEST(EmitterWithALostFile, MakesItAnewAndLosesNothingThatThreadsEmitMeanwhile) {
  constexpr int kThreads = 3;
  constexpr int kLosses = 3;
  SegmentPlace place;
  Segment& segment = *place.Create(kSegmentLayout);
  auto& emitter = *new Emitter(segment);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> emitted{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      while (!stop) {
        emitted += emitter.Emit(ValueOf(0, emitter.DrawTicket()).header) ? 1 : 0;
        for (int i = 0; i < 50'000 && !stop; ++i)
          std::atomic_signal_fence(std::memory_order_seq_cst);
      }
    });
  }
  // What the daemon does; without it the ring would soon be full.
  std::set<uint64_t> seen;
  wire::RingReader reader = FindingsIn(segment);
  wire::RecordCopy copy;
  const auto drain = [&] {
    while (reader.Read(copy, wire::Holes::kWait) == wire::RingRead::kRecord) {
      EXPECT_TRUE(seen.insert(copy.header().ticket).second) << "told twice";
    }
    wire::ReleaseSlots(*segment.ring(), reader.cursor());
  };
  for (int loss = 0; loss < kLosses; ++loss) {
    unlink(segment.path());
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    SegmentReport report;
    while (!std::filesystem::exists(segment.path())) {
      ASSERT_TRUE(emitter.KeepSegment(report)) << report.message;
      ASSERT_LT(Clock::now(), deadline);
      drain();
    }
    EXPECT_THAT(report.message, testing::HasSubstr("created again"));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  drain();
  EXPECT_EQ(reader.Read(copy, wire::Holes::kWait), wire::RingRead::kEmpty) << "a hole was left";
  EXPECT_EQ(seen.size(), emitted.load());
  EXPECT_EQ(emitted.load() + reader.Dropped(), segment.live().tickets.load());
  EXPECT_GT(seen.size(), 100u);
}

TEST(EmitterWithALostFile, SaysWhyItCannotBeMadeAnewOnceAndGoesOn) {
  SegmentPlace place;
  Segment& segment = *place.Create();
  auto& emitter = *new Emitter(segment);
  std::filesystem::remove_all(place.directory());
  std::filesystem::create_symlink("elsewhere", place.directory());
  SegmentReport report;
  EXPECT_FALSE(emitter.KeepSegment(report));
  EXPECT_THAT(report.message, testing::HasSubstr("symbolic link"));
  EXPECT_TRUE(emitter.KeepSegment(report)) << "the next attempt is a minute away";
  EXPECT_TRUE(emitter.Emit(ValueOf(0, emitter.DrawTicket()).header));
}

// What the job knows of names, places, totals and first findings survives; what lay in the ring and
// was not read is counted as lost.
TEST(EmitterWithALostFile, WritesAgainWhatItKnowsWhenTheFileWasCutShort) {
  SegmentPlace place;
  Segment& segment = *place.Create(kSegmentLayout);
  auto& emitter = *new Emitter(segment);
  const uint32_t op = emitter.Intern("aten::mm");
  bool is_new = false;
  const uint32_t site = emitter.InternSite({.op = op}, nullptr, nullptr, &is_new);
  for (uint64_t i = 1; i <= 5; ++i) {
    const uint64_t ticket = emitter.DrawTicket();
    emitter.CountSite(site, ticket, {});
    if (i == 1) emitter.KeepFirst(ValueOf(site, ticket));
    ASSERT_TRUE(emitter.Emit(ValueOf(site, ticket).header));
  }
  emitter.RecordReach(wire::Reach::kGradient, 5, 6, 7, {});
  for (int i = 0; i < 3; ++i) {
    wire::TelemetryEntry telemetry{};
    emitter.PublishStep({}, telemetry);
  }
  LiveFacts facts;
  facts.ops_seen = 77;
  emitter.PublishLive(facts);

  ASSERT_EQ(truncate(segment.path(), 0), 0);
  EXPECT_EQ(emitter.DrawTicket(), 6u) << "no store ends the process, and no number comes twice";
  SegmentReport report;
  ASSERT_TRUE(emitter.KeepSegment(report)) << report.message;
  EXPECT_THAT(report.message, testing::HasSubstr("cut short"));

  EXPECT_EQ(NameOf(segment, op), "aten::mm");
  EXPECT_EQ(emitter.Intern("aten::mm"), op);
  ASSERT_TRUE(SiteOf(segment, site));
  EXPECT_EQ(SiteOf(segment, site)->count, 5u);
  EXPECT_EQ(SiteOf(segment, site)->first_ticket, 1u);
  wire::RecordCopy copy;
  ASSERT_TRUE(wire::ReadFirstFinding(segment.first()[0], copy));
  EXPECT_EQ(copy.header().ticket, 1u);
  EXPECT_EQ(wire::ReadFirstReach(segment.reach()[2])->value, 5u);
  EXPECT_EQ(segment.live().ops_seen.load(), 77u);
  EXPECT_EQ(segment.live().tickets.load(), 6u);
  EXPECT_EQ(segment.steps()->written.load(), 3u);
  EXPECT_GT(FindingsIn(segment).Dropped(), 0u) << "a loss has to be counted";
  EXPECT_EQ(FindingsIn(segment).Read(copy, wire::Holes::kWait), wire::RingRead::kEmpty);
  const uint64_t ticket = emitter.DrawTicket();
  wire::RingReader reader = FindingsIn(segment);
  ASSERT_TRUE(emitter.Emit(ValueOf(site, ticket).header));
  ASSERT_EQ(reader.Read(copy, wire::Holes::kWait), wire::RingRead::kRecord);
  EXPECT_EQ(copy.header().ticket, 7u);
}

}  // namespace
}  // namespace nanwatch
