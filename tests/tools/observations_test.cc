// SPDX-License-Identifier: Apache-2.0
// The joined view of database and segments, against a database filled with told runs.
#include "tools/observations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "tests/daemon/correlate/run_builder.h"
#include "tests/fakes/segment_builder.h"
#include "tests/tools/temporary_directory.h"
#include "tools/job_exit.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RunBatch Batch(uint64_t nonce, const std::string& job, uint64_t started_s) {
  RunBuilder builder;
  builder.Value(1).Produce("aten::sqrt").At("valves.main").Step(5).Nan(4, 8);
  const RunFacts facts = builder.Build();
  RunBatch batch;
  batch.run = facts.run();
  batch.run.set_nonce(nonce);
  batch.run.set_job(job);
  batch.run.set_started_real_ns(started_s * 1'000'000'000);
  batch.run_id = RunId(batch.run);
  batch.state = facts.state();
  batch.state.set_ended(true);
  batch.sites.assign(facts.sites().begin(), facts.sites().end());
  batch.records.assign(facts.records().begin(), facts.records().end());
  return batch;
}

// A step whose values tell its number.
void WriteStep(SegmentBuilder& job, uint64_t number) {
  wire::StepEntry entry{};
  entry.time_ns = number * 1'000'000'000;
  entry.clocks.optimizer_steps[0] = entry.clocks.optimizer_ranges = static_cast<uint32_t>(number);
  wire::TelemetryEntry telemetry{};
  telemetry.loss = static_cast<double>(number);
  telemetry.gradient_norm = 2.0 * static_cast<double>(number);
  telemetry.scale = 1024;
  telemetry.known = wire::TelemetryEntry::kLoss | wire::TelemetryEntry::kGradientNorm |
                    wire::TelemetryEntry::kScale;
  job.WriteStep(entry, telemetry);
}

class ObservationsTest : public ::testing::Test {
 protected:
  ObservationsTest() {
    places_.segment_dir = directory_.path();
    places_.state_dir = directory_.path();
    places_.database = directory_.Path("nanwatch.db");
  }

  // The job that `name` stands for, or what is wrong with it.
  std::string Resolve(const std::string& name) {
    Observations observations(places_);
    const Result<std::string> job = observations.ResolveJob(name);
    return job.ok() ? *job : job.status().message();
  }

  void Fill(const std::vector<RunBatch>& batches) {
    Result<Store> store = Store::OpenForWriting(places_.database);
    ASSERT_TRUE(store.ok()) << store.status().message();
    const Status committed = store->Commit(batches, 1);
    ASSERT_TRUE(committed.ok()) << committed.message();
  }

  TemporaryDirectory directory_;
  Places places_;
};

TEST_F(ObservationsTest, WithoutADatabaseThereAreNoRunsAndNothingIsWrong) {
  Observations observations(places_);
  EXPECT_THAT(observations.Runs(), SizeIs(0));
  EXPECT_TRUE(observations.DatabaseStatus().ok());
  const Result<std::string> job = observations.ResolveJob("");
  EXPECT_EQ(job.status().kind(), ErrorKind::kNotFound);
  EXPECT_THAT(job.status().message(), HasSubstr("nanwatch run --"));
}

TEST_F(ObservationsTest, ADatabaseThatAppearsLaterIsSeen) {
  Observations observations(places_);
  EXPECT_THAT(observations.Runs(), SizeIs(0));
  Fill({Batch(0x1111, "a", 100)});
  EXPECT_THAT(observations.Runs(), SizeIs(1));
}

TEST_F(ObservationsTest, TheNewestRunIsFirstAndMeantByDefault) {
  Fill({Batch(0x1111, "a", 100), Batch(0x2222, "b", 300), Batch(0x3333, "c", 200)});
  Observations observations(places_);
  std::vector<std::string> jobs;
  for (const SeenRun& run : observations.Runs()) jobs.push_back(run.job);
  EXPECT_THAT(jobs, ElementsAre("b", "c", "a"));
  EXPECT_EQ(Resolve(""), "b");
}

TEST_F(ObservationsTest, ARunIsFoundByTheBeginningOfItsIdOrJob) {
  Fill({Batch(0xabc0000000000001, "first", 100), Batch(0xabd0000000000001, "second", 200)});
  Observations observations(places_);
  EXPECT_EQ(Resolve("abc"), "first");
  EXPECT_EQ(Resolve("sec"), "second");
  EXPECT_EQ(observations.ResolveJob("ab").status().kind(), ErrorKind::kAmbiguous);
  EXPECT_THAT(observations.ResolveJob("ab").status().message(), HasSubstr("abd0000000000001"));
  EXPECT_EQ(observations.ResolveJob("zz").status().kind(), ErrorKind::kNotFound);
}

TEST_F(ObservationsTest, ANumberIsAProcessBeforeItIsTheBeginningOfAnId) {
  RunBatch old = Batch(0x4711000000000001, "old", 100);
  RunBatch named = Batch(0x5555000000000001, "4712", 150);
  RunBatch process = Batch(0x6666000000000001, "process", 200);
  process.run.set_pid(4711);
  RunBatch other = Batch(0x7777000000000001, "other", 300);
  other.run.set_pid(4712);
  Fill({old, named, process, other});
  EXPECT_EQ(Resolve("4711"), "process");
  EXPECT_EQ(Resolve("47110"), "old");
  EXPECT_EQ(Resolve("4712"), "4712");  // a job's whole id is that job
}

TEST_F(ObservationsTest, FactsOfAJobAreThoseOfAllItsProcessesAndNoOthers) {
  Fill({Batch(0x1111, "a", 100), Batch(0x2222, "a", 50), Batch(0x3333, "b", 200)});
  Observations observations(places_);
  const std::vector<RunFacts> facts = observations.FactsOfJob("a");
  ASSERT_THAT(facts, SizeIs(2));
  EXPECT_EQ(facts[0].run().nonce(), 0x2222u);
  EXPECT_THAT(facts[0].records(), SizeIs(1));
}

// As `nanwatch run` meets it where the daemon has not read the new launch yet.
TEST_F(ObservationsTest, ARunOfAFormerMonthUnderTheSameLaunchIdIsNotOfTheJob) {
  constexpr uint64_t kMonthS = 30 * 24 * 3600;
  RunBatch former = Batch(0x1111, "4711.0", 1000);
  RunBatch now = Batch(0x2222, "4711.0", 1000 + kMonthS);
  former.state.set_ended_real_ns(former.run.started_real_ns() + 1);
  Fill({now, former});  // the newer one first, so that none is set aside
  Observations observations(places_);
  const std::vector<RunFacts> facts = observations.FactsOfJob("4711.0");
  ASSERT_THAT(facts, SizeIs(1));
  EXPECT_EQ(facts[0].run().nonce(), 0x2222u);
}

TEST_F(ObservationsTest, KnowsTheJobsOfSegmentsAndOfTheDatabaseAndWhichLive) {
  Fill({Batch(0x1111, "stored", 100)});
  const SegmentBuilder live(places_.segment_dir, {.nonce = 1, .job = "live"});
  const SegmentBuilder dead(places_.segment_dir, {.nonce = 2, .job = "dead", .dead = true});
  const JobNames jobs = Observations(places_).Jobs();
  EXPECT_THAT(jobs.all, ElementsAre("dead", "live", "stored"));
  EXPECT_THAT(jobs.live, ElementsAre("live"));
}

TEST_F(ObservationsTest, FindingsAreNewsAndStepsAreNone) {
  SegmentBuilder job(places_.segment_dir, {.nonce = 1});
  Observations observations(places_);
  EXPECT_TRUE(observations.HasNewFindings()) << "a segment came";
  EXPECT_FALSE(observations.HasNewFindings());
  job.WriteStep(1.0);
  job.Publish();
  EXPECT_FALSE(observations.HasNewFindings());
  for (int i = 0; i < 3; ++i) {
    job.WriteValue("aten::log", "a");
    EXPECT_TRUE(observations.HasNewFindings()) << i;
    EXPECT_FALSE(observations.HasNewFindings());
  }
  std::filesystem::remove(job.path());
  EXPECT_TRUE(observations.HasNewFindings()) << "it went";
}

TEST_F(ObservationsTest, AmbiguousNamesAreAnsweredByWhatTheyMayStandFor) {
  Fill({Batch(0xabc0000000000001, "4711.0", 100), Batch(0xabd0000000000001, "4711.1", 200)});
  EXPECT_EQ(Resolve("4711"),
            "'4711' matches several jobs: give more of the id, such as 4711.1 4711.0");
}

TEST_F(ObservationsTest, GarbageAmongTheSegmentsIsNamedAndHidesNothing) {
  Fill({Batch(0x1111, "a", 100)});
  directory_.Write("nw-1-0123456789abcdef.seg", "this is no segment");
  directory_.Write("nw-2-0123456789abcdef.seg", "");
  Observations observations(places_);
  EXPECT_THAT(observations.Runs(), SizeIs(1));
  EXPECT_THAT(observations.foreign(), SizeIs(2));
  EXPECT_FALSE(observations.foreign()[0].reason.empty());
}

TEST_F(ObservationsTest, HowACommandEndedIsKnownBeforeADaemonHasReadIt) {
  ASSERT_TRUE(WriteJobExit(places_.segment_dir, "a", 4711, CommandEnd{.exit_code = 7}, 1).ok());
  const std::optional<JobExit> exit = Observations(places_).ExitOfJob("a");
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->exit_code, 7);
  EXPECT_EQ(Observations(places_).ExitOfJob("b"), std::nullopt);
}

// A job's name is the job's word.
TEST_F(ObservationsTest, AJobNamedLikeAPathReadsNoFileElsewhere) {
  places_.segment_dir = directory_.Path("segments");
  std::filesystem::create_directory(places_.segment_dir);
  // <directory>/../other.exit
  ASSERT_TRUE(
      WriteJobExit(places_.segment_dir, "../other", 4711, CommandEnd{.exit_code = 7}, 1).ok());
  ASSERT_TRUE(std::filesystem::exists(directory_.Path("other.exit")));
  EXPECT_EQ(Observations(places_).ExitOfJob("../other"), std::nullopt);
}

TEST_F(ObservationsTest, ADatabaseThatCannotBeReadIsSaid) {
  directory_.Write("nanwatch.db", std::string(8192, 'x'));
  Observations observations(places_);
  EXPECT_THAT(observations.Runs(), SizeIs(0));
  EXPECT_FALSE(observations.DatabaseStatus().ok());
}

TEST_F(ObservationsTest, OfALiveRunOnlyTheLastStepsAreRead) {
  SegmentBuilder job(directory_.path(), {.job = "j"});
  for (uint64_t i = 1; i <= 200; ++i) WriteStep(job, i);  // the ring holds 64
  job.Publish();
  Observations observations(places_);
  const std::vector<LiveRun> runs = observations.LiveRuns({.steps_max = 3});
  ASSERT_THAT(runs, SizeIs(1));
  ASSERT_THAT(runs[0].last_steps, SizeIs(3));
  EXPECT_EQ(runs[0].last_steps[0].index(), 197u);
  EXPECT_EQ(runs[0].last_steps[2].loss(), 200);
  EXPECT_EQ(runs[0].last_steps[2].gradient_norm(), 400);
  EXPECT_EQ(runs[0].last_steps[2].scale(), 1024);
  EXPECT_THAT(observations.LiveRuns({.steps_max = 1000})[0].last_steps, SizeIs(64));
}

TEST_F(ObservationsTest, WhatALiveRunDoesNextIsSeenAtTheNextLook) {
  SegmentBuilder job(directory_.path(), {.job = "j"});
  Observations observations(places_);
  EXPECT_THAT(observations.LiveRuns({})[0].last_steps, IsEmpty());
  EXPECT_THAT(observations.LiveRuns({})[0].newest_sites, IsEmpty());
  WriteStep(job, 1);
  job.WriteValue("aten::log", "encoder.0");
  job.WriteValue("aten::sqrt", "encoder.1");
  job.Publish();
  const std::vector<LiveRun> runs = observations.LiveRuns({.sites_max = 1});
  EXPECT_THAT(runs[0].last_steps, SizeIs(1));
  ASSERT_THAT(runs[0].newest_sites, SizeIs(1));
  EXPECT_EQ(runs[0].newest_sites[0].op(), "aten::sqrt");
  EXPECT_EQ(runs[0].seen.state.values_bad(), 2u);
}

TEST_F(ObservationsTest, WhatPassedABadValueOnDoesNotBuryWhereItWasMade) {
  SegmentBuilder job(directory_.path(), {.job = "j"});
  job.WriteValue("aten::log", "encoder.0");
  for (const char* op : {"aten::mul", "aten::sum", "aten::mm"}) {
    job.WriteValue(op, "encoder.0", wire::FindingClass::kPropagate);
  }
  job.Publish();
  const std::vector<LiveRun> runs = Observations(places_).LiveRuns({.sites_max = 3});
  std::vector<std::string> ops;
  for (const Site& site : runs[0].newest_sites) {
    ops.push_back(site.op());
  }
  EXPECT_THAT(ops, ElementsAre("aten::log", "aten::mm", "aten::sum"));
}

TEST_F(ObservationsTest, LookingAtLiveRunsConsumesNothing) {
  SegmentBuilder job(directory_.path(), {.job = "j"});
  job.WriteValue("aten::log", "encoder.0");
  job.Publish();
  Observations observations(places_);
  for (int look = 0; look < 3; ++look) EXPECT_THAT(observations.LiveRuns({}), SizeIs(1));
  EXPECT_EQ(job.ring().released_slots.load(), 0u);
  EXPECT_THAT(observations.FactsOfJob("j")[0].records(), SizeIs(1));
}

TEST_F(ObservationsTest, ADeadProcessAndARemovedFileAreNoLiveRuns) {
  IdleProcess process;
  SegmentBuilder mortal(directory_.path(), {.nonce = 0x1, .job = "j", .pid = process.pid()});
  SegmentBuilder removed(directory_.path(), {.nonce = 0x2, .job = "j"});
  mortal.Publish();
  removed.Publish();
  Observations observations(places_);
  EXPECT_THAT(observations.LiveRuns({}), SizeIs(2));
  process.Kill();
  EXPECT_THAT(observations.LiveRuns({}), SizeIs(1));
  std::filesystem::remove(removed.path());
  EXPECT_THAT(observations.LiveRuns({}), IsEmpty());
}

TEST_F(ObservationsTest, AFileMadeAnewUnderTheSameNameIsOpenedAnew) {
  Observations observations(places_);
  auto job = std::make_unique<SegmentBuilder>(directory_.path(), SegmentBuilderOptions{.job = "a"});
  EXPECT_EQ(observations.LiveRuns({})[0].seen.job, "a");
  std::filesystem::remove(job->path());
  job = std::make_unique<SegmentBuilder>(directory_.path(), SegmentBuilderOptions{.job = "b"});
  EXPECT_EQ(observations.LiveRuns({})[0].seen.job, "b");
}

TEST_F(ObservationsTest, GarbageAmongLiveRunsIsNamedAndHidesNothing) {
  directory_.Write("nw-1-0123456789abcdef.seg", std::string(4096, '\xff'));
  SegmentBuilder job(directory_.path(), {.job = "j"});
  Observations observations(places_);
  EXPECT_THAT(observations.LiveRuns({}), SizeIs(1));
  EXPECT_THAT(observations.foreign(), SizeIs(1));
}

TEST_F(ObservationsTest, IncidentsAreKnownOnceTheDaemonKnowsTheJob) {
  Fill({Batch(0x1111, "a", 100)});
  Observations observations(places_);
  EXPECT_FALSE(observations.IncidentsOfJob("b").has_value());
  ASSERT_TRUE(observations.IncidentsOfJob("a").has_value());
  EXPECT_THAT(*observations.IncidentsOfJob("a"), IsEmpty());
  Result<Store> store = Store::OpenForWriting(places_.database);
  Incident incident;
  incident.set_severity("error");
  ASSERT_TRUE(store->ReplaceIncidents("a", {incident}).ok());
  EXPECT_THAT(*observations.IncidentsOfJob("a"), SizeIs(1));
  EXPECT_TRUE(observations.StoredRun("0000000000001111")->state.ended());
  EXPECT_FALSE(observations.StoredRun("0000000000002222").has_value());
}

}  // namespace
}  // namespace nanwatch
