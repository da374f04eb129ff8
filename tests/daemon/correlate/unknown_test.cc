// SPDX-License-Identifier: Apache-2.0
// A job in which too little was watched is neither clean nor expected.
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "proto/wire/segment.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

constexpr auto kIdle = static_cast<uint32_t>(wire::Level::kIdle);
constexpr auto kFull = static_cast<uint32_t>(wire::Level::kFull);
constexpr auto kAuto = static_cast<uint32_t>(wire::Level::kAuto);

RunFacts WithSteps(RunFacts facts, uint64_t idle, uint64_t full) {
  facts.mutable_state()->clear_steps_watched();
  for (int level = 0; level < wire::kWatchedLevels; ++level)
    facts.mutable_state()->add_steps_watched(0);
  facts.mutable_state()->set_steps_watched(static_cast<int>(kIdle), idle);
  facts.mutable_state()->set_steps_watched(static_cast<int>(kFull), full);
  return facts;
}

void ExpectUnknown(const Verdict& verdict, const std::string& because) {
  EXPECT_EQ(verdict.verdict(), "unknown");
  EXPECT_EQ(verdict.unknown_because(), because);
}

TEST(Unknown, JobWithoutAnObservedProcess) { ExpectUnknown(Correlate({}), "no_run"); }

// At canary a value is met where Python reads it.
RunFacts ReadAtCanary(uint32_t updates_after) {
  RunBuilder run;
  run.Step(4).Value(1).Propagate("torch.isfinite").FromUnknown().Nan();
  RunFacts facts = WithSteps(run.Build(), 0, 0);
  facts.mutable_state()->set_steps_watched(static_cast<int>(wire::Level::kCanary), 4);
  Clocks& newest = *facts.mutable_state()->mutable_clocks();
  newest = facts.records(0).clocks();
  newest.set_optimizer_ranges(newest.optimizer_ranges() + updates_after);
  return facts;
}

TEST(Unknown, JobThatReadABadValueAtCanaryAndMadeNoUpdateAfterIt) {
  ExpectUnknown(Correlate({ReadAtCanary(0)}), "not_followed");
  EXPECT_EQ(Correlate({ReadAtCanary(1)}).verdict(), "expected");
}

Verdict WithUnwatched(const std::vector<RunFacts>& runs, const std::vector<std::string>& reasons) {
  std::vector<UnwatchedProcess> unwatched;
  for (const std::string& reason : reasons) {
    unwatched.emplace_back().set_reason(reason);
    unwatched.back().set_pid(static_cast<int32_t>(unwatched.size()));
  }
  return Correlate(runs, {}, 0, unwatched).verdict;
}

TEST(Unknown, JobWhoseProcessesCouldNotBeObservedSaysWhichWayTheyWent) {
  for (const char* reason :
       {"no_room", "no_observer", "not_started", "no_ops", "ended_early", "import_failed"}) {
    ExpectUnknown(WithUnwatched({}, {reason}), reason);
  }
  ExpectUnknown(WithUnwatched({}, {"no_ops", "no_observer"}), "no_observer");
}

TEST(Unknown, AProcessThatWasNotWatchedMakesTheOthersNotEnough) {
  const RunFacts watched = WithSteps(RunBuilder().Build(), 0, 800);
  ExpectUnknown(WithUnwatched({watched}, {"not_started"}), "not_started");
  EXPECT_EQ(WithUnwatched({watched}, {"no_ops", "ended_early", "import_failed"}).verdict(),
            "clean");
}

TEST(Unknown, JobInWhichNoTensorWasChecked) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_tensors_checked(0);
  ExpectUnknown(Correlate({facts}), "nothing_checked");
}

TEST(Unknown, JobWhoseGpuWasNotChecked) {
  const auto with = [](wire::Unchecked reason, uint64_t unchecked) {
    RunFacts facts = WithSteps(RunBuilder().Build(), 0, 8);
    facts.mutable_state()->set_tensors_checked(100);
    auto& counts = *facts.mutable_state()->mutable_unchecked();
    counts.Clear();
    for (int i = 0; i < wire::kUncheckedReasons; ++i) counts.Add(0);
    counts.Set(static_cast<int>(reason), unchecked);
    return Correlate({facts});
  };
  ExpectUnknown(with(wire::Unchecked::kOtherDevice, 101), "device_not_checked");
  ExpectUnknown(with(wire::Unchecked::kGpuNotReady, 101), "device_not_checked");
  EXPECT_EQ(with(wire::Unchecked::kGpuBusy, 100).verdict(), "clean");
  EXPECT_EQ(with(wire::Unchecked::kSparse, 1000).verdict(), "clean");
}

TEST(Unknown, JobThatLostRecords) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_records_dropped(2);
  ExpectUnknown(Correlate({facts}), "records_lost");
}

// The middle of a long run is thinned out: what stands there may have ruined it.
TEST(Unknown, JobWhoseRecordsWereLeftOut) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_records_thinned(2'000);
  ExpectUnknown(Correlate({facts}), "records_left_out");

  RunBuilder ruined;
  ruined.Step(4).Value(1).Produce("aten::log").Nan();
  ruined.Update(2).Parameter("fc.weight", 1);
  facts = ruined.Build();
  facts.mutable_state()->set_records_thinned(2'000);
  EXPECT_EQ(Correlate({facts}).verdict(), "anomaly") << "what is there is enough";
}

TEST(Unknown, JobThatWasIdleForPartOfItsSteps) {
  ExpectUnknown(Correlate({WithSteps(RunBuilder().Build(), 435, 365)}), "steps_not_checked");
}

// A job that was idle when it ended: what it did then may be no whole step.
TEST(Unknown, JobThatEndedIdle) {
  RunFacts facts = WithSteps(RunBuilder().Build(), 0, 800);
  facts.mutable_state()->set_level(static_cast<uint32_t>(wire::Level::kIdle));
  EXPECT_EQ(Correlate({facts}).verdict(), "clean") << "it has never published its level";
  facts.mutable_state()->set_heartbeat_ns(1);
  ExpectUnknown(Correlate({facts}), "steps_not_checked");
}

TEST(Unknown, StepsThatWereOffToMeasureAreExcused) {
  RunFacts facts = WithSteps(RunBuilder().Build(), 48, 4952);
  facts.mutable_state()->set_steps_off(48);
  EXPECT_EQ(Correlate({facts}).verdict(), "clean");
  facts.mutable_state()->set_steps_off(47);
  ExpectUnknown(Correlate({facts}), "steps_not_checked");
}

// What was made while they were off may be what ended it.
TEST(Unknown, JobThatEndedWhileItsChecksWereOff) {
  RunFacts facts = WithSteps(RunBuilder().Build(), 4, 500);
  facts.mutable_state()->set_steps_off(4);
  facts.mutable_state()->set_off_now(true);
  EXPECT_EQ(Correlate({facts}).verdict(), "clean") << "it goes on, and is checked next";
  facts.mutable_state()->set_ended(true);
  ExpectUnknown(Correlate({facts}), "steps_not_checked");
  facts.mutable_state()->set_off_now(false);
  EXPECT_EQ(Correlate({facts}).verdict(), "clean") << "what it left was read";
}

TEST(Unknown, OneIdleRankIsEnough) {
  ExpectUnknown(Correlate({WithSteps(RunBuilder().Rank(0).Build(), 0, 800),
                           WithSteps(RunBuilder().Rank(1).Build(), 1, 799)}),
                "steps_not_checked");
}

TEST(Unknown, HarmlessValuesDoNotMakeUpForIdleSteps) {
  RunBuilder run;
  run.Value(1).Scalar("aten::full").NegInf();
  EXPECT_EQ(Correlate({WithSteps(run.Build(), 0, 800)}).verdict(), "expected");
  ExpectUnknown(Correlate({WithSteps(run.Build(), 435, 365)}), "steps_not_checked");
}

TEST(Unknown, StepsThatLevelAutoLeftOutAreByDesign) {
  RunFacts facts = WithSteps(RunBuilder().Build(), 700, 100);
  facts.mutable_state()->set_level(kAuto);
  const Verdict verdict = Correlate({facts});
  EXPECT_EQ(verdict.verdict(), "clean");
  EXPECT_EQ(verdict.unknown_because(), "");
}

TEST(Unknown, AnAnomalyIsCertainWhateverWasNotWatched) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").Nan();
  run.Pass(2).Root(1);
  RunFacts facts = WithSteps(run.Build(), 435, 365);
  facts.mutable_state()->set_records_dropped(2);
  const Verdict verdict = Correlate({facts});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.unknown_because(), "");
}

}  // namespace
}  // namespace nanwatch
