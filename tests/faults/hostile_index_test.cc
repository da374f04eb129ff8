// SPDX-License-Identifier: Apache-2.0
// Fault 14: a process that stores anything to the indexes of its segment while the daemon reads.
// One look at the segment ends, and all other segments are read.
#include "tests/faults/scene.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/ingest/segment_reader.h"
#include "proto/wire/stats_ring.h"

namespace nanwatch {
namespace {

// As large as a segment may be.
constexpr SegmentLayout kLargeRing = SmallLayoutWithRing(1 << 18);
constexpr SegmentLayout kManySteps{.ring_slots = 256,
                                   .steps = 1 << 16,
                                   .stats = 64,
                                   .sites = 128,
                                   .names = 256,
                                   .name_bytes = 16 * 1024};
constexpr SegmentLayout kManyStats{.ring_slots = 256,
                                   .steps = 64,
                                   .stats = 1 << 16,
                                   .sites = 128,
                                   .names = 256,
                                   .name_bytes = 16 * 1024};
// Of the processor's time, which no other process's load adds to. A look takes some milliseconds;
// without a bound it takes minutes.
constexpr rlim_t kLooksCpuSecondsMax = 30;

// So it stays a little ahead of a reader that passes a lap at a time.
constexpr useconds_t kPaceUs = 50;

// Before anybody else, where that is allowed: whoever is held up is no longer ahead of its reader.
void RunFirst() {
  const sched_param first{.sched_priority = 1};
  (void)sched_setscheduler(0, SCHED_FIFO, &first);
}

unsigned char* SectionOf(const SegmentBuilder& job, wire::SectionType type) {
  const wire::SectionEntry* entry = job.header().sections;
  while (entry->type != static_cast<uint32_t>(type)) ++entry;
  return job.bytes() + entry->offset;
}

class HostileIndexTest : public FaultTest {
 protected:
  static void RunAheadInRing(SegmentBuilder& job) {
    RunFirst();
    usleep(kPaceUs);
    const uint64_t next = job.ring().reserved_slots.load() + kLargeRing.ring_slots + 1;
    auto* slots = reinterpret_cast<wire::Slot*>(&job.ring() + 1);
    slots[(next - 1) % kLargeRing.ring_slots].commit.store(next);
    job.ring().reserved_slots.store(next);
  }
  // Looks at the segment in a process of its own, which is killed when that takes too much time.
  void ExpectLookEnds(const SegmentBuilder& job, bool to_end) {
    const int status = InChild([&] {
      const rlimit limit{.rlim_cur = kLooksCpuSecondsMax, .rlim_max = kLooksCpuSecondsMax};
      if (setrlimit(RLIMIT_CPU, &limit) != 0) _exit(4);
      // At times the writer is held up, and a look ends at once.
      for (int i = 0; i < 20; ++i) {
        Result<SegmentReader> reader =
            SegmentReader::Open(job.path(), SegmentReader::Access::kLook);
        if (!reader.ok()) _exit(2);
        if (!reader->Read(to_end, clock_).ok()) _exit(3);
      }
    });
    EXPECT_EQ(status, 0) << "twenty looks took more than half a minute of processor time";
  }
  // While the job writes lap after lap of `capacity` entries. Of every lap one stands: the last.
  template <typename Entry>
  void ExpectLookEndsAsItRunsAhead(const SegmentBuilder& job, wire::StepRingHeader& ring,
                                   Entry* entries, uint64_t capacity) {
    uint64_t written = uint64_t{1} << 32;
    ring.written.store(written);
    const Scribbler hostile([&] {
      RunFirst();
      usleep(kPaceUs);
      written += capacity + 1;
      entries[(written - 1) % capacity].sequence.store(2 * written);
      ring.written.store(written);
    });
    ExpectLookEnds(job, /*to_end=*/false);
  }
};

// Of every lap one slot is the head of a record: the last.
TEST_F(HostileIndexTest, AWriterThatRunsAheadKeepsNoReaderOfItsRing) {
  SegmentBuilder job(options_.segment_dir, {.layout = kLargeRing, .nonce = 1});
  const Scribbler hostile([&] { RunAheadInRing(job); });
  ExpectLookEnds(job, /*to_end=*/true);
}

TEST_F(HostileIndexTest, AWriterThatRunsAheadKeepsNoReaderOfItsSteps) {
  const SegmentBuilder job(options_.segment_dir, {.layout = kManySteps, .nonce = 1});
  auto* ring = reinterpret_cast<wire::StepRingHeader*>(SectionOf(job, wire::SectionType::kSteps));
  auto* entries = reinterpret_cast<wire::StepEntry*>(ring + 1);
  ExpectLookEndsAsItRunsAhead(job, *ring, entries, kManySteps.steps);
}

TEST_F(HostileIndexTest, AWriterThatRunsAheadKeepsNoReaderOfItsSnapshots) {
  const SegmentBuilder job(options_.segment_dir, {.layout = kManyStats, .nonce = 1});
  auto* ring = reinterpret_cast<wire::StepRingHeader*>(SectionOf(job, wire::SectionType::kStats));
  auto* entries = reinterpret_cast<wire::StatsEntry*>(ring + 1);
  // They are whole, and no head of a snapshot.
  for (uint64_t i = 0; i < kManyStats.stats; ++i) entries[i].kind = wire::StatsEntry::kParameter;
  ExpectLookEndsAsItRunsAhead(job, *ring, entries, kManyStats.stats);
}

TEST_F(HostileIndexTest, OthersAreReadBesideIt) {
  SegmentBuilder hostile_job(options_.segment_dir, {.layout = kLargeRing, .nonce = 1});
  SegmentBuilder job(options_.segment_dir, {.nonce = 2});
  const Scribbler hostile([&] { RunAheadInRing(hostile_job); });
  Start();
  const int rounds = FaultRounds(20, 2'000);
  for (int i = 0; i < rounds && !HasFatalFailure(); ++i) {
    job.WriteValue("aten::log", "a");
    Tick();
  }
  EXPECT_EQ(TicketsOf(2), static_cast<uint64_t>(rounds));
  ExpectSoundStore();
}

// Whoever writes on though it counts as dead is not waited for.
TEST_F(HostileIndexTest, OneOfTheDeadThatHasNoEndIsNamedAndRemoved) {
  SegmentBuilder job(options_.segment_dir, {.layout = kLargeRing, .nonce = 1, .dead = true});
  const Scribbler hostile([&] { RunAheadInRing(job); });
  Start();
  for (int i = 0; i < 40 && !HasFatalFailure(); ++i) Tick();
  EXPECT_EQ(daemon_->intake().open_segments(), 0u);
  EXPECT_TRUE(FactsOf(1).state().ended());
}

// The cursor of a segment that was created again may be many laps behind: an honest jump.
TEST_F(HostileIndexTest, ARingThatBeginsFarAheadIsReadToItsEnd) {
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  job.ring().reserved_slots.store(uint64_t{1} << 40);
  job.ring().released_slots.store(uint64_t{1} << 40);
  Result<SegmentReader> reader = SegmentReader::Open(job.path(), SegmentReader::Access::kConsume);
  ASSERT_TRUE(reader.ok());
  reader->Resume({.ring = 3});
  wire::RingWriter writer(&job.ring(), reinterpret_cast<wire::Slot*>(&job.ring() + 1),
                          kSmallLayout.ring_slots);
  wire::EndRecord record{};
  record.header.bytes = sizeof record;
  record.header.kind = static_cast<uint16_t>(wire::RecordKind::kEnd);
  size_t written = 0;
  for (; writer.Write(&record, sizeof record); ++written) record.header.ticket = 2 + written;
  const Result<RunBatch> batch = reader->Read(/*to_end=*/true, clock_);
  ASSERT_TRUE(batch.ok());
  EXPECT_GT(written, 60u);
  EXPECT_EQ(batch->records.size(), written);
  EXPECT_FALSE(batch->more);
}

}  // namespace
}  // namespace nanwatch
