// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/segment_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "daemon/ingest/whole_segment.h"
#include "shim/host/ignore_text.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/segment_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SegmentReaderTest : public testing::Test {
 protected:
  static SegmentReader Open(const SegmentBuilder& job,
                            SegmentReader::Access access = SegmentReader::Access::kConsume) {
    Result<SegmentReader> reader = SegmentReader::Open(job.path(), access);
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    return *std::move(reader);
  }
  RunBatch Read(SegmentReader& reader, bool to_end = false) {
    Result<RunBatch> batch = reader.Read(to_end, clock_);
    EXPECT_TRUE(batch.ok()) << batch.status().message();
    return *std::move(batch);
  }
  static std::vector<uint64_t> Tickets(const RunBatch& batch) {
    std::vector<uint64_t> tickets;
    for (const Record& record : batch.records) tickets.push_back(record.ticket());
    return tickets;
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
};

TEST_F(SegmentReaderTest, TellsALineFromItsCallers) {
  SegmentBuilder job(directory_.path(),
                     {.source = "m.py:7 in <lambda> < train.py:9 in step < ..."});
  (void)job.WriteValue("aten::log", "encoder.0");
  job.Publish();
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  ASSERT_EQ(batch.sites.size(), 1u);
  EXPECT_EQ(batch.sites[0].source(), "m.py:7 in <lambda>");
  EXPECT_THAT(batch.sites[0].callers(), ElementsAre("train.py:9 in step", "..."));
}

TEST_F(SegmentReaderTest, BringsWhatAJobWroteWithItsNames) {
  SegmentBuilder job(directory_.path(), {.nonce = 0xabc, .job = "nightly", .rank = 3});
  const uint64_t ticket = job.WriteValue("aten::log", "encoder.0");
  job.WriteReach(wire::Reach::kParameter, ticket, "encoder.0.weight");
  job.WriteStep(0.5);
  job.Publish();
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);

  EXPECT_EQ(batch.run_id, "0000000000000abc");
  EXPECT_EQ(batch.run.job(), "nightly");
  EXPECT_EQ(batch.run.rank(), 3);
  EXPECT_THAT(batch.run.command(), ElementsAre("python", "train.py", "--fast"));
  ASSERT_EQ(batch.sites.size(), 1u);
  EXPECT_EQ(batch.sites[0].op(), "aten::log");
  EXPECT_EQ(batch.sites[0].layer(), "encoder.0");
  EXPECT_EQ(batch.sites[0].source(), "train.py:7 in forward");
  EXPECT_EQ(batch.sites[0].count(), 1u);
  ASSERT_EQ(batch.records.size(), 1u);
  const ValueFact& value = batch.records[0].value();
  EXPECT_EQ(value.site(), batch.sites[0].id());
  ASSERT_EQ(value.outputs_size(), 1);
  EXPECT_THAT(value.outputs(0).shape(), ElementsAre(4, 8));
  EXPECT_EQ(value.outputs(0).nan(), 4u);
  ASSERT_EQ(batch.reach.size(), 1u);
  EXPECT_EQ(batch.reach[0].name(), "encoder.0.weight");
  ASSERT_EQ(batch.steps.size(), 1u);
  EXPECT_EQ(batch.steps[0].loss(), 0.5);
  EXPECT_EQ(batch.state.values_bad(), 1u);
  EXPECT_EQ(batch.state.clocks().optimizer_ranges(), 1u);
  EXPECT_TRUE(batch.has_findings());
}

TEST_F(SegmentReaderTest, BringsTheUsersRulesLineByLine) {
  SegmentBuilder job(directory_.path(), {.ignore = "# masks\nop=aten::log\tlayer=\x1b[2Jm"});
  const nanwatch::Run run = Open(job).run();
  EXPECT_EQ(run.ignore(), "# masks\nop=aten::log layer=\xef\xbf\xbd[2Jm\n");
  EXPECT_EQ(run.ignore_problem(), "");
}

TEST_F(SegmentReaderTest, BelievesNothingAboutTheUsersRules) {
  SegmentBuilder job(directory_.path(), {.ignore = "op=aten::log"});
  SegmentMap map = MapSegment(kSmallLayout);
  auto* section = reinterpret_cast<wire::IgnoreSection*>(job.bytes() + AppendIgnoreSection(map));
  section->bytes = 0xffffffff;
  EXPECT_LE(Open(job).run().ignore().size(), 3 * wire::kIgnoreBytesMax);
  section->bytes = 12;
  section->flags = wire::IgnoreSection::kCut;
  EXPECT_THAT(Open(job).run().ignore_problem(), HasSubstr("those at the end are not applied"));
  section->flags = wire::IgnoreSection::kUnreadable;
  section->error = -7;
  EXPECT_THAT(Open(job).run().ignore_problem(), HasSubstr("'op=aten::log' are not applied"));
  EXPECT_EQ(Open(job).run().ignore(), "");
}

TEST_F(SegmentReaderTest, BringsABatchAgainUntilItIsAcknowledgedAndThenNeverMore) {
  SegmentBuilder job(directory_.path(), {});
  const uint64_t first = job.WriteValue("aten::log", "a");
  SegmentReader reader = Open(job);
  EXPECT_THAT(Tickets(Read(reader)), ElementsAre(first));
  const RunBatch again = Read(reader);
  EXPECT_THAT(Tickets(again), ElementsAre(first));
  EXPECT_EQ(again.sites_new, 1u);
  ASSERT_TRUE(reader.Acknowledge(again).ok());
  const uint64_t second = job.WriteValue("aten::log", "a");
  const RunBatch next = Read(reader);
  EXPECT_THAT(Tickets(next), ElementsAre(second));
  EXPECT_EQ(next.sites_new, 0u);
  ASSERT_EQ(next.sites.size(), 1u) << "a known place that was counted on";
  EXPECT_EQ(next.sites[0].count(), 2u);
}

TEST_F(SegmentReaderTest, ReleasesSlotsOnlyWhenTheBatchIsAcknowledged) {
  SegmentBuilder job(directory_.path(), {});
  job.WriteValue("aten::log", "a");
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  EXPECT_EQ(job.ring().released_slots.load(), 0u);
  ASSERT_TRUE(reader.Acknowledge(batch).ok());
  EXPECT_EQ(job.ring().released_slots.load(), job.ring().reserved_slots.load());
}

TEST_F(SegmentReaderTest, LookingReleasesNothing) {
  SegmentBuilder job(directory_.path(), {});
  job.WriteValue("aten::log", "a");
  SegmentReader reader = Open(job, SegmentReader::Access::kLook);
  ASSERT_TRUE(reader.Acknowledge(Read(reader)).ok());
  EXPECT_EQ(job.ring().released_slots.load(), 0u);
}

TEST_F(SegmentReaderTest, FirstFindingsAndTotalsAreThereThoughTheRingOverflowed) {
  SegmentBuilder job(directory_.path(), {});
  for (int i = 0; i < 1000; ++i) job.WriteValue("aten::exp", "early");
  std::vector<uint64_t> firsts;
  for (int i = 0; i < 60; ++i)
    firsts.push_back(job.WriteValue("aten::log", "late." + std::to_string(i)));
  job.Publish();
  ASSERT_GT(job.dropped(), 0u);
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  EXPECT_THAT(Tickets(batch), testing::IsSupersetOf(firsts));
  EXPECT_EQ(batch.sites.size(), 61u);
  EXPECT_EQ(batch.sites[0].count(), 1000u);
  EXPECT_EQ(batch.state.values_bad(), 1060u);
  EXPECT_EQ(batch.state.records_dropped(), job.dropped());
}

TEST_F(SegmentReaderTest, WaitsForARecordThatALivingJobHasNotCompleted) {
  SegmentBuilder job(directory_.path(), {});
  const uint64_t before = job.WriteValue("aten::log", "a");
  job.LeaveHole(2);
  const uint64_t after = job.WriteValue("aten::exp", "a");
  (void)after;
  SegmentReader reader = Open(job);
  RunBatch batch = Read(reader);
  EXPECT_THAT(Tickets(batch), testing::Contains(before));
  ASSERT_TRUE(reader.Acknowledge(batch).ok());
  const uint64_t stuck_at = batch.cursor.ring;
  clock_.Advance(kHoleWaitNs / 2);
  EXPECT_EQ(Read(reader).cursor.ring, stuck_at);
  EXPECT_TRUE(reader.HasNews());
  clock_.Advance(kHoleWaitNs);
  batch = Read(reader);
  EXPECT_EQ(batch.cursor.ring, job.ring().reserved_slots.load());
  EXPECT_EQ(batch.state.holes(), 2u);
}

TEST_F(SegmentReaderTest, PassesOverTheHolesOfTheDeadAtOnceAndCountsThem) {
  SegmentBuilder job(directory_.path(), {.dead = true});
  job.LeaveHole(3);
  const uint64_t ticket = job.WriteValue("aten::log", "a");
  SegmentReader reader = Open(job);
  EXPECT_FALSE(reader.WriterLives(clock_));
  const RunBatch batch = Read(reader, /*to_end=*/true);
  EXPECT_THAT(Tickets(batch), ElementsAre(ticket));
  EXPECT_EQ(batch.cursor.ring, job.ring().reserved_slots.load());
  EXPECT_EQ(batch.state.holes(), 3u);
}

TEST_F(SegmentReaderTest, CountsStepsThatWereOverwrittenBeforeTheyWereRead) {
  SegmentBuilder job(directory_.path(), {});
  for (int i = 0; i < 100; ++i) job.WriteStep(i);
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  ASSERT_EQ(batch.steps.size(), kSmallLayout.steps);
  EXPECT_EQ(batch.steps.back().index(), 99u);
  EXPECT_EQ(batch.state.steps_lost(), 100u - kSmallLayout.steps);
}

TEST_F(SegmentReaderTest, BringsTheOpsBeforeAFindingOnce) {
  SegmentBuilder job(directory_.path(), {});
  const uint64_t value = job.WriteValue("aten::exp", "");
  job.WriteTrail(value, {{"aten::addmm", 2.0}, {"aten::mul", 90.0}, {"aten::addmm", 4.0}});
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  ASSERT_EQ(batch.records.size(), 2u);
  const TrailFact& trail = batch.records[1].trail();
  EXPECT_EQ(trail.value(), value);
  ASSERT_EQ(trail.ops_size(), 3);
  EXPECT_EQ(trail.names(static_cast<int>(trail.ops(2).op())), "aten::addmm");
  EXPECT_EQ(trail.ops(0).op(), trail.ops(2).op());
  EXPECT_EQ(trail.ops(1).largest(), 90);
  ASSERT_TRUE(reader.Acknowledge(batch).ok());
  EXPECT_FALSE(reader.HasUrgentNews());
  job.WriteTrail(value, {{"aten::mul", 5.0}});
  EXPECT_TRUE(reader.HasUrgentNews());
  ASSERT_EQ(Read(reader).records.size(), 1u);
}

TEST_F(SegmentReaderTest, BelievesNothingAboutTheOpsBeforeAFinding) {
  SegmentBuilder job(directory_.path(), {});
  job.WriteTrail(1, {{"aten::a", std::nan("")}, {"aten::b", -1.0}, {"aten::c", 2.0}});
  const wire::SectionEntry& section = job.header().sections[9];
  ASSERT_EQ(section.type, static_cast<uint32_t>(wire::SectionType::kTrail));
  auto* entry = reinterpret_cast<wire::TrailEntry*>(job.bytes() + section.offset +
                                                    sizeof(wire::StepRingHeader));
  entry->count = 4'000'000'000;
  entry->ops[2].known = entry->ops[2].phase = entry->ops[2].element_type = 200;
  entry->ops[2].op = 77'777;
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  ASSERT_EQ(batch.records.size(), 1u);
  const TrailFact& trail = batch.records[0].trail();
  EXPECT_EQ(trail.ops_size(), wire::kTrailOpsMax);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(trail.ops(i).known(), wire::TrailOp::kNothing) << i;
  EXPECT_EQ(trail.ops(2).phase() + trail.ops(2).element_type(), 0u);
  EXPECT_EQ(trail.names(static_cast<int>(trail.ops(2).op())), "");
}

TEST_F(SegmentReaderTest, ReadsTheKernelsOfAFinding) {
  SegmentBuilder job(directory_.path(), {});
  const uint64_t value = job.WriteValue("aten::log", "scale");
  job.WriteKernels(value, {{"_Z10log_kernelf", 1200}, {"copy", 30}});
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  ASSERT_EQ(batch.records.size(), 2u);
  const KernelsFact& fact = batch.records[1].kernels();
  EXPECT_EQ(fact.value(), value);
  ASSERT_EQ(fact.kernels_size(), 2);
  EXPECT_EQ(fact.kernels(0).name(), "_Z10log_kernelf");
  EXPECT_EQ(fact.kernels(0).count(), 1u);
  EXPECT_EQ(fact.kernels(0).nanoseconds(), 1200u);
  EXPECT_EQ(fact.kernels(1).name(), "copy");
}

wire::LoaderSamples SamplesOf(const std::string& text, uint8_t count) {
  wire::LoaderSamples samples{};
  samples.of_batch = 40;
  samples.count = count;
  samples.flags = wire::LoaderSamples::kWholeBatch;
  samples.text_bytes = static_cast<uint16_t>(text.size());
  std::memcpy(samples.text, text.data(), std::min(text.size(), sizeof samples.text));
  return samples;
}

TEST_F(SegmentReaderTest, ReadsTheSamplesThatALoaderFetched) {
  SegmentBuilder job(directory_.path(), {});
  job.WriteValueOfSamples("aten::div", SamplesOf("17\n'c\x1b[0mat'\n(3, 4)\n", 3));
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  ASSERT_EQ(batch.records.size(), 1u);
  ASSERT_EQ(batch.records[0].value().outputs_size(), 1);
  const LoaderSamples& samples = batch.records[0].value().samples();
  EXPECT_THAT(samples.indices(), ElementsAre("17", "'c\xef\xbf\xbd[0mat'", "(3, 4)"));
  EXPECT_EQ(samples.of_batch(), 40u);
  EXPECT_TRUE(samples.whole_batch());
}

TEST_F(SegmentReaderTest, BelievesNothingAboutTheSamplesOfALoader) {
  wire::LoaderSamples too_many = SamplesOf("1\n", 1);
  too_many.count = wire::kLoaderSamplesMax + 1;
  wire::LoaderSamples too_long = SamplesOf("1\n", 1);
  too_long.text_bytes = sizeof too_long.text + 1;
  uint64_t nonce = 1;
  for (const wire::LoaderSamples& lie :
       {too_many, too_long, SamplesOf("1\n", 2), SamplesOf("1", 1), SamplesOf("", 1)}) {
    SegmentBuilder job(directory_.path(), {.nonce = ++nonce});
    job.WriteValueOfSamples("aten::div", lie);
    job.WriteValue("aten::log", "a");
    SegmentReader reader = Open(job);
    const RunBatch batch = Read(reader);
    ASSERT_EQ(batch.records.size(), 1u);
    EXPECT_FALSE(batch.records[0].value().has_samples());
    EXPECT_GE(batch.cursor.malformed, 1u);
  }
}

TEST_F(SegmentReaderTest, GoesOnWhereAnEarlierDaemonStopped) {
  SegmentBuilder job(directory_.path(), {});
  job.WriteValue("aten::log", "a");
  job.WriteStep(1);
  SegmentCursor cursor;
  {
    SegmentReader reader = Open(job);
    cursor = Read(reader).cursor;  // committed, and killed before the release
  }
  job.WriteValue("aten::log", "a");
  SegmentReader reader = Open(job);
  reader.Resume(cursor);
  const RunBatch batch = Read(reader);
  EXPECT_EQ(batch.cursor.ring, job.ring().reserved_slots.load());
  EXPECT_TRUE(batch.steps.empty());
}

TEST_F(SegmentReaderTest, IgnoresACursorThatLiesBeyondTheSegment) {
  SegmentBuilder job(directory_.path(), {});
  const uint64_t ticket = job.WriteValue("aten::log", "a");
  SegmentReader reader = Open(job);
  reader.Resume({.ring = 1'000'000, .steps = 5});
  EXPECT_THAT(Tickets(Read(reader)), ElementsAre(ticket));
}

TEST_F(SegmentReaderTest, InAStormReadsSitesThatAreNewAtOnceAndTheOthersCountsWhenAsked) {
  SegmentBuilder job(directory_.path(), {});
  Result<SegmentReader> reader = SegmentReader::Open(job.path(), SegmentReader::Access::kConsume);
  ASSERT_TRUE(reader.ok());
  const auto read = [&](SegmentReader::Counts counts) {
    RunBatch batch = reader->Read(false, clock_, counts).value();
    EXPECT_TRUE(reader->Acknowledge(batch).ok());
    return batch;
  };
  for (int i = 0; i < 30; ++i) job.WriteValue("aten::log", "layer." + std::to_string(i));
  EXPECT_EQ(read(SegmentReader::Counts::kAll).sites.size(), 30u);
  for (int i = 0; i < 30; ++i) job.WriteValue("aten::log", "layer." + std::to_string(i));
  job.WriteValue("aten::exp", "new");
  const RunBatch quick = read(SegmentReader::Counts::kOfNewSites);
  ASSERT_EQ(quick.sites.size(), 1u);
  EXPECT_EQ(quick.sites[0].op(), "aten::exp");
  EXPECT_TRUE(reader->HasNews()) << "the counts are not read yet";
  EXPECT_EQ(read(SegmentReader::Counts::kAll).sites.size(), 30u);
  EXPECT_FALSE(reader->HasNews());
}

TEST_F(SegmentReaderTest, HasNewsOnlyWhenSomethingWasPublished) {
  SegmentBuilder job(directory_.path(), {});
  job.Publish();
  SegmentReader reader = Open(job);
  EXPECT_TRUE(reader.HasNews());
  ASSERT_TRUE(reader.Acknowledge(Read(reader)).ok());
  EXPECT_FALSE(reader.HasNews());
  job.Publish();
  EXPECT_TRUE(reader.HasNews());
  EXPECT_FALSE(reader.HasUrgentNews()) << "counters can wait";
  job.WriteValue("aten::log", "a");
  EXPECT_TRUE(reader.HasUrgentNews());
}

TEST_F(SegmentReaderTest, AFileThatIsCutShortUnderItIsAnErrorAndNoCrash) {
  SegmentBuilder job(directory_.path(), {});
  job.WriteValue("aten::log", "a");
  SegmentReader reader = Open(job);
  ASSERT_TRUE(reader.Acknowledge(Read(reader)).ok());
  ASSERT_EQ(truncate(job.path().c_str(), 4096), 0);
  const Result<RunBatch> batch = reader.Read(false, clock_);
  ASSERT_FALSE(batch.ok());
  EXPECT_THAT(batch.status().message(), HasSubstr("cut short"));
  (void)reader.HasNews();
  (void)reader.WriterLives(clock_);
}

TEST_F(SegmentReaderTest, AToolSeesTheWholeRunAndWhetherItEnded) {
  SegmentBuilder job(directory_.path(), {.dead = true});
  job.WriteValue("aten::log", "a");
  job.WriteEnd();
  const Result<SegmentFacts> whole = ReadWhole(job.path(), clock_);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->facts.records_size(), 2);
  EXPECT_EQ(whole->facts.sites_size(), 1);
  EXPECT_TRUE(whole->facts.state().ended());
  EXPECT_TRUE(whole->is_whole);
  EXPECT_EQ(job.ring().released_slots.load(), 0u);
}

// Few bytes that decode to more than one read takes.
TEST_F(SegmentReaderTest, AToolReadsAsOftenAsThereIsMore) {
  constexpr SegmentLayout kLarge = SmallLayoutWithRing(1 << 16);
  SegmentBuilder job(directory_.path(), {.layout = kLarge, .dead = true});
  const int written = FillWithLongNames(job, kLarge);
  SegmentReader reader = Open(job);
  ASSERT_TRUE(Read(reader).more) << "or this test shows nothing";
  const Result<SegmentFacts> whole = ReadWhole(job.path(), clock_);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->facts.records_size(), written);
  EXPECT_TRUE(whole->is_whole);
  EXPECT_EQ(whole->facts.state().records_dropped(), job.dropped());
}

// No job writes so much: here a hostile one.
TEST_F(SegmentReaderTest, AToolThatDoesNotReachTheEndSaysSo) {
  constexpr SegmentLayout kLarge = SmallLayoutWithRing(1 << 18);
  SegmentBuilder job(directory_.path(), {.layout = kLarge, .dead = true});
  FillWithLongNames(job, kLarge);
  const Result<SegmentFacts> whole = ReadWhole(job.path(), clock_);
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(whole->is_whole);
  EXPECT_GT(whole->facts.state().records_dropped(), job.dropped()) << "a verdict says so";
}

TEST_F(SegmentReaderTest, NamesThatSteerATerminalComeOutHarmless) {
  SegmentBuilder job(directory_.path(), {.program = "a\x1b[2Jb\xff.py"});
  job.WriteValue("aten::\x1b]0;evil\x07", "layer\n0");
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  EXPECT_EQ(batch.run.program(), "a\xEF\xBF\xBD[2Jb\xEF\xBF\xBD.py");
  EXPECT_EQ(batch.sites[0].layer(),
            "layer\xEF\xBF\xBD"
            "0");
  EXPECT_EQ(batch.sites[0].op().find('\x1b'), std::string::npos);
}

wire::StatsParameter Parameter(double gradient_norm) {
  using wire::StatsParameter;
  StatsParameter parameter{};
  parameter.numel = 40;
  parameter.gradient_zeros = 10;
  parameter.gradient_norm = gradient_norm;
  parameter.update_norm = 0.5;
  parameter.weight_norm = 2;
  parameter.sampled = 40;
  parameter.element_type = static_cast<uint8_t>(wire::ElementType::kFloat16);
  parameter.flags =
      StatsParameter::kHasGradient | StatsParameter::kGradientRead | StatsParameter::kUpdateRead;
  return parameter;
}

TEST_F(SegmentReaderTest, BringsSnapshotsOfParametersOnceEachAndGoesOnFromACursor) {
  SegmentBuilder job(directory_.path(), {});
  wire::StatsHead head{};
  head.interval = 100;
  head.on_gpu = 2;
  wire::StatsParameter without{};
  without.numel = 3;
  job.WriteStats(head, {Parameter(1.5), without}, {"a.weight", ""});
  SegmentReader reader = Open(job);
  const RunBatch first = Read(reader);
  ASSERT_EQ(first.stats.size(), 1u);
  const StatsSnapshot& snapshot = first.stats[0];
  EXPECT_EQ(snapshot.optimizer_class(), "AdamW");
  EXPECT_EQ(snapshot.on_gpu(), 2u);
  ASSERT_EQ(snapshot.parameters_size(), 2);
  EXPECT_EQ(snapshot.parameters(0).name(), "a.weight");
  EXPECT_EQ(snapshot.parameters(0).root(), "Model#0");
  EXPECT_EQ(snapshot.parameters(0).gradient_norm(), 1.5);
  EXPECT_EQ(snapshot.parameters(0).gradient_zero_share(), 0.25);
  EXPECT_FALSE(snapshot.parameters(0).has_eps());
  EXPECT_EQ(snapshot.parameters(1).name(), "parameter 1");
  EXPECT_FALSE(snapshot.parameters(1).has_gradient());
  EXPECT_FALSE(snapshot.parameters(1).has_gradient_norm());
  EXPECT_FALSE(snapshot.parameters(1).has_update_norm());
  ASSERT_TRUE(reader.Acknowledge(first).ok());
  EXPECT_TRUE(Read(reader).stats.empty());

  job.WriteStats(head, {Parameter(2.5)}, {"a.weight"});
  EXPECT_TRUE(reader.HasNews());
  SegmentReader next = Open(job);
  next.Resume(first.cursor);
  const RunBatch second = Read(next);
  ASSERT_EQ(second.stats.size(), 1u);
  EXPECT_EQ(second.stats[0].number(), 1u);
  EXPECT_EQ(second.stats[0].parameters(0).gradient_norm(), 2.5);
}

TEST_F(SegmentReaderTest, AGlanceHasTheNewestSnapshot) {
  SegmentBuilder job(directory_.path(), {});
  SegmentReader reader = Open(job);
  EXPECT_FALSE(reader.Glance(4).last_stats.has_value());
  for (int i = 0; i < 41; ++i) {
    job.WriteStats({}, {Parameter(i), Parameter(i), Parameter(i)}, {"a", "b", "c"});
    ASSERT_TRUE(reader.Glance(4).last_stats.has_value());
    EXPECT_EQ(reader.Glance(4).last_stats->parameters(2).gradient_norm(), i);
  }
}

TEST_F(SegmentReaderTest, CountsSnapshotsThatWereOverwrittenAndHurriesBeforeTheyAre) {
  SegmentBuilder job(directory_.path(), {});  // 64 entries
  SegmentReader reader = Open(job);
  RunBatch batch = Read(reader);
  ASSERT_TRUE(reader.Acknowledge(batch).ok());
  job.WriteStats({}, {Parameter(1)}, {"a"});
  EXPECT_FALSE(reader.HasUrgentNews());
  for (int i = 0; i < 39; ++i) job.WriteStats({}, {Parameter(i)}, {"a"});
  EXPECT_TRUE(reader.HasUrgentNews());
  batch = Read(reader);
  EXPECT_EQ(batch.stats.size(), 32u);
  EXPECT_EQ(batch.cursor.stats_lost, 16u);
  EXPECT_EQ(batch.state.stats_lost(), 16u);
}

TEST_F(SegmentReaderTest, WhatCannotBeOfASnapshotIsBroughtIntoRange) {
  SegmentBuilder job(directory_.path(), {});
  wire::StatsParameter lie = Parameter(std::numeric_limits<double>::quiet_NaN());
  lie.element_type = 200;
  lie.gradient_zeros = ~uint64_t{0};
  lie.flags = 0xffff;
  job.WriteStats({}, {lie}, {"\x1b[2J"});
  SegmentReader reader = Open(job);
  const RunBatch batch = Read(reader);
  const ParameterStats& parameter = batch.stats.at(0).parameters(0);
  EXPECT_EQ(parameter.element_type(), 0u);
  EXPECT_EQ(parameter.gradient_zero_share(), 1);
  EXPECT_EQ(parameter.name(), "\xef\xbf\xbd[2J");
}

}  // namespace
}  // namespace nanwatch
