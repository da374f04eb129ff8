// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

// As sharpness-aware training writes its weights before the first step.
TEST(Coverage, UpdatesByHandBeforeTheFirstStepOfAnOptimizerAreNoSteps) {
  const auto coverage_of = [](uint32_t optimizer_steps) {
    Clocks clocks = OptimizerClocks({optimizer_steps});
    clocks.set_plain_updates(2);
    clocks.set_optimizer_ranges(optimizer_steps);
    RunFacts facts = RunBuilder().Ended(clocks).Build();
    facts.set_steps(optimizer_steps + 2);
    RunState& state = *facts.mutable_state();
    state.clear_steps_watched();
    state.add_steps_watched(1);
    state.add_steps_watched(0);
    state.add_steps_watched(0);
    state.add_steps_watched(optimizer_steps + 1);
    return Correlate({facts}).coverage();
  };
  const Coverage coverage = coverage_of(6);
  EXPECT_EQ(coverage.steps(), 6u);
  uint64_t watched = 0;
  for (const auto& [level, steps] : coverage.steps_watched()) watched += steps;
  EXPECT_EQ(watched, 6u);
  EXPECT_EQ(coverage_of(0).steps(), 2u) << "without an optimizer they are its steps";
}

TEST(Coverage, VolumesAreSummedAndStepsAreThoseOfTheLongestRun) {
  RunFacts a = RunBuilder().Rank(0).Ended(OptimizerClocks({6})).Build();
  RunFacts b = RunBuilder().Rank(1).Ended(OptimizerClocks({5})).Build();
  a.mutable_state()->set_bytes_checked(10);
  b.mutable_state()->set_bytes_checked(20);
  const Coverage coverage = Correlate({a, b}).coverage();
  EXPECT_EQ(coverage.steps(), 6u);
  EXPECT_EQ(coverage.ops_seen(), 2000u);
  EXPECT_EQ(coverage.tensors_checked(), 1800u);
  EXPECT_EQ(coverage.bytes_checked(), 30u);
}

TEST(Coverage, EveryKindOfLossIsAnEventLost) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_records_dropped(1);
  facts.mutable_state()->set_holes(2);
  facts.mutable_state()->set_records_malformed(4);
  EXPECT_EQ(Correlate({facts}).coverage().lost_events(), 7u);
}

// Its findings have their records, without a site in them.
TEST(Coverage, ASiteThatFoundNoRoomIsNoEventLost) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_sites_dropped(3);
  facts.add_records()->mutable_value();
  facts.add_records()->mutable_kill();
  facts.add_records()->mutable_escape();
  EXPECT_EQ(Correlate({facts}).coverage().lost_events(), 0u);
}

// Older jobs counted nothing else about a finding without a site that got no record.
TEST(Coverage, AFindingWithNeitherSiteNorRecordIsLost) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_sites_dropped(5);
  facts.add_records()->mutable_value();
  EXPECT_EQ(Correlate({facts}).coverage().lost_events(), 4u);
  facts.mutable_state()->set_records_dropped(4);
  EXPECT_EQ(Correlate({facts}).coverage().lost_events(), 4u) << "a newer job counted them";
}

TEST(Coverage, SaysOfHowManyFindingsTheRecordsWereLeftOut) {
  RunFacts a = RunBuilder().Rank(0).Build();
  RunFacts b = RunBuilder().Rank(1).Build();
  a.mutable_state()->set_records_thinned(2'000);
  b.mutable_state()->set_records_thinned(3);
  const Verdict verdict = Correlate({a, b});
  EXPECT_EQ(verdict.coverage().records_thinned(), 2'003u);
  EXPECT_EQ(verdict.coverage().lost_events(), 0u);
}

TEST(Coverage, SummariesOfStepsThatWereOverwrittenAreCounted) {
  RunFacts a = RunBuilder().Rank(0).Build();
  RunFacts b = RunBuilder().Rank(1).Build();
  a.mutable_state()->set_steps_lost(1'200);
  b.mutable_state()->set_steps_lost(34);
  const Verdict verdict = Correlate({a, b});
  EXPECT_EQ(verdict.coverage().step_summaries_lost(), 1'234u);
  EXPECT_EQ(verdict.coverage().lost_events(), 0u) << "findings are not among them";
  EXPECT_EQ(verdict.verdict(), Correlate({RunBuilder().Build()}).verdict());
}

TEST(Coverage, UncheckedReasonsHaveNames) {
  RunFacts facts = RunBuilder().Build();
  for (int reason = 0; reason < 17; ++reason) facts.mutable_state()->add_unchecked(0);
  facts.mutable_state()->set_unchecked(0, 3);
  facts.mutable_state()->set_unchecked(6, 5);
  facts.mutable_state()->set_unchecked(14, 2);
  facts.mutable_state()->set_unchecked(16, 1);
  const Verdict verdict = Correlate({facts});
  const auto& unchecked = verdict.coverage().unchecked();
  EXPECT_EQ(unchecked.at("sparse"), 3u);
  EXPECT_EQ(unchecked.at("other_device"), 5u);
  EXPECT_EQ(unchecked.at("gpu_not_ready"), 2u);
  EXPECT_EQ(unchecked.at("reason_16"), 1u);
  EXPECT_EQ(unchecked.size(), 4u);
}

RunFacts WithOverhead(int rank, double low, double percent, double high) {
  RunFacts facts = RunBuilder().Rank(rank).Build();
  facts.mutable_state()->set_overhead_percent(percent);
  facts.mutable_state()->set_overhead_low(low);
  facts.mutable_state()->set_overhead_high(high);
  return facts;
}

TEST(Coverage, OverheadIsUnknownUntilMeasured) {
  RunFacts facts = RunBuilder().Build();
  const Coverage coverage = Correlate({facts}).coverage();
  EXPECT_FALSE(coverage.has_overhead_percent());
  EXPECT_EQ(coverage.overhead_interval_size(), 0);
}

TEST(Coverage, OverheadOfSeveralProcessesIsThatOfTheSlowest) {
  const Coverage coverage = Correlate({WithOverhead(0, 0.8, 1.2, 1.9), WithOverhead(1, 2, 3, 4),
                                       RunBuilder().Rank(2).Build(), WithOverhead(3, -1, 0, 1)})
                                .coverage();
  EXPECT_EQ(coverage.overhead_percent(), 3);
  EXPECT_THAT(coverage.overhead_interval(), testing::ElementsAre(2, 4));
}

TEST(Coverage, StepsThatWereOffToMeasureHaveTheirOwnReason) {
  RunFacts facts = RunBuilder().Build();
  EXPECT_FALSE(Correlate({facts}).coverage().unchecked().contains("measuring"));
  facts.mutable_state()->set_steps_off(48);
  EXPECT_EQ(Correlate({facts}).coverage().unchecked().at("measuring"), 48u);
}

TEST(Coverage, RunIsDescribedFromItsSegment) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_run()->set_started_real_ns(1'700'000'000'000'000'000ull);
  facts.mutable_state()->set_level(static_cast<uint32_t>(wire::Level::kFull));
  const Verdict verdict = Correlate({facts});
  EXPECT_EQ(verdict.run().id(), "0000000000007f3a");
  EXPECT_EQ(verdict.run().started_at(), "2023-11-14T22:13:20Z");
  EXPECT_EQ(verdict.run().level(), "full");
  EXPECT_FALSE(verdict.run().has_ended_at());
  EXPECT_FALSE(verdict.run().has_exit_code());
}

}  // namespace
}  // namespace nanwatch
