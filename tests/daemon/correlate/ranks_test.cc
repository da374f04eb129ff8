// SPDX-License-Identifier: Apache-2.0
// One rank's NaN on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

RunFacts SenderOnRankOne() {
  RunBuilder run;
  run.Rank(1).Step(3);
  run.Value(1).Produce("aten::div").At("ratio", "Ratio").PosInf();
  run.Value(2).Propagate("aten::mm").Backward("MmBackward0").From(1).Nan();
  run.Pass(3).Root(1).Leaf("enc.0.weight", 2);
  run.CollectiveIn(4, "default", 17, 2);
  run.Value(5).Received("c10d::allreduce_").FromCollective("default", 17).Nan();
  run.Value(6).Propagate("aten::add_").Optimizer("enc.0.weight").From(5).Nan();
  run.Update(7).Parameter("enc.0.weight", 6);
  return run.Build();
}

RunFacts ReceiverOnRankZero() {
  RunBuilder run;
  run.Rank(0).Step(3);
  run.CollectiveOut(1, "default", 17, 2);
  run.Value(2).Received("c10d::allreduce_").FromCollective("default", 17).Nan();
  run.Value(3).Propagate("aten::add_").Optimizer("enc.0.weight").From(2).Nan();
  run.Update(4).Parameter("enc.0.weight", 3);
  run.Value(5)
      .Propagate("aten::addmm")
      .At("enc.0")
      .Step(4)
      .FromOutside(wire::Target::kParameter, "enc.0.weight")
      .Nan();
  return run.Build();
}

TEST(Ranks, IncidentBelongsToTheRankThatMadeTheValue) {
  const Verdict verdict = Correlate({ReceiverOnRankZero(), SenderOnRankOne()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.op(), "aten::div");
  EXPECT_EQ(origin.rank(), 1);
  EXPECT_EQ(origin.step(), 3);
  EXPECT_EQ(verdict.run().rank(), 1);
  EXPECT_EQ(verdict.runs_size(), 2);
  EXPECT_EQ(verdict.runs(0).rank(), 0);
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("parameter"));
}

TEST(Ranks, WithoutTheCollectivesNumberTheSameIterationDecides) {
  RunBuilder receiver;
  receiver.Rank(0).Step(3);
  receiver.Value(2).Received("c10d::allreduce_").Nan();
  receiver.Pass(3).Leaf("enc.0.weight", 2);
  const Verdict verdict = Correlate({receiver.Build(), SenderOnRankOne()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().rank(), 1);
}

TEST(Ranks, AMetricThatWasBadOnAnotherRankHasNotRuinedTheTraining) {
  RunBuilder shows;
  shows.Rank(1).Step(3);
  shows.Value(1).Produce("aten::log").At("metric").WithoutGradients().Nan();
  shows.Value(2).Propagate("aten::mean").From(1).WithoutGradients().Nan();
  shows.Read(3, 2);
  const Verdict verdict = Correlate({ReceiverOnRankZero(), shows.Build()});
  ASSERT_EQ(verdict.incidents_size(), 2);
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "received");
  EXPECT_EQ(verdict.incidents(0).severity(), "critical");
  EXPECT_EQ(verdict.incidents(1).origin().op(), "aten::log");
  EXPECT_EQ(verdict.incidents(1).severity(), "warning");
}

TEST(Ranks, ValueFromARankThatNobodyWatchedIsReceivedAndSaysSo) {
  const Verdict verdict = Correlate({ReceiverOnRankZero()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.class_(), "received");
  EXPECT_EQ(origin.kind(), "unknown");
  EXPECT_EQ(origin.rank(), 0);
  EXPECT_FALSE(origin.exact());
  EXPECT_THAT(origin.unseen(), ElementsAre("sender"));
}

// A number counts one process's collectives, and two groups of different pace give it in different
// steps.
TEST(Ranks, OfTwoSendersWithThisNumberTheOneInTheReceiversStepIsTaken) {
  RunBuilder other;
  other.Rank(0).Step(1);
  other.Value(1).Produce("aten::sqrt").At("other").Nan();
  other.CollectiveIn(2, "default", 17, 1);
  RunBuilder receiver;
  receiver.Rank(2).Step(3);
  receiver.CollectiveOut(1, "default", 17, 2);
  receiver.Value(2).Received("c10d::allreduce_").FromCollective("default", 17).Nan();
  receiver.Pass(3).Leaf("enc.0.weight", 2);
  const Verdict verdict = Correlate({other.Build(), SenderOnRankOne(), receiver.Build()});
  const auto& incidents = verdict.incidents();
  const auto received = std::count_if(incidents.begin(), incidents.end(), [](const Incident& each) {
    return each.origin().class_() == "received";
  });
  EXPECT_EQ(received, 0);
  ASSERT_GE(incidents.size(), 1);
  EXPECT_EQ(incidents[0].origin().op(), "aten::div");
  const auto of_other = std::find_if(incidents.begin(), incidents.end(), [](const Incident& each) {
    return each.origin().op() == "aten::sqrt";
  });
  ASSERT_NE(of_other, incidents.end());
  EXPECT_EQ(of_other->count(), 1u);
}

// What a rank had given was not recorded, so its own share comes back to it as if from another.
TEST(Ranks, OwnShareOfASumIsOfWhatTheOthersReceived) {
  RunBuilder sender;
  sender.Rank(1).Step(3);
  sender.Value(1).Produce("aten::div").At("enc.0").Nan();
  sender.CollectiveOut(2, "default", 17, 3);
  sender.Value(3).Received("c10d::allreduce_").FromCollective("default", 17).Nan();
  sender.Pass(4).Leaf("enc.0.weight", 1);
  RunBuilder receiver;
  receiver.Rank(2).Step(3);
  receiver.CollectiveOut(1, "default", 17, 2);
  receiver.Value(2).Received("c10d::allreduce_").FromCollective("default", 17).Nan();
  receiver.Pass(3).Leaf("enc.0.weight", 2);
  const Verdict verdict = Correlate({sender.Build(), receiver.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::div");
  EXPECT_EQ(verdict.incidents(0).origin().rank(), 1);
}

// Rank 0 broadcasts an Inf on which it does not train itself; the NaN of rank 1's gradient comes back
// to it in a sum.
std::vector<RunFacts> BroadcastThatComesBack() {
  RunBuilder sender;
  sender.Rank(0).Step(3);
  sender.Value(1).Produce("aten::exp").PosInf();
  sender.CollectiveIn(2, "default", 17, 1);
  sender.Value(3).Received("c10d::allreduce_").FromCollective("default", 18).Nan();
  sender.CollectiveOut(4, "default", 18, 3);
  sender.Pass(5).Leaf("enc.0.weight", 3);
  sender.Update(6).Parameter("enc.0.weight", 3);
  RunBuilder receiver;
  receiver.Rank(1).Step(3);
  receiver.Value(1).Received("c10d::broadcast_").FromCollective("default", 17).PosInf();
  receiver.CollectiveOut(2, "default", 17, 1);
  receiver.Value(3).Propagate("aten::mm").Backward("MmBackward0").From(1).Nan();
  receiver.CollectiveIn(4, "default", 18, 3);
  receiver.Value(5).Received("c10d::allreduce_").FromCollective("default", 18).Nan();
  receiver.Update(6).Parameter("enc.0.weight", 5);
  return {sender.Build(), receiver.Build()};
}

TEST(Ranks, WhatComesBackToTheRankThatMadeItIsOfItsIncident) {
  const Verdict verdict = Correlate(BroadcastThatComesBack());
  ASSERT_EQ(verdict.incidents_size(), 1) << verdict.incidents(1).origin().op();
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.op(), "aten::exp");
  EXPECT_EQ(origin.rank(), 0);
  EXPECT_EQ(verdict.incidents(0).severity(), "critical");
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("parameter"));
}

// Both have only what the other one gave: nobody made it.
TEST(Ranks, RanksThatGaveEachOtherInACircleHaveReceived) {
  std::vector<RunFacts> runs;
  for (const int rank : {0, 1}) {
    RunBuilder run;
    run.Rank(rank).Step(3);
    run.CollectiveIn(1, "default", 17, 2);
    run.Value(2).Received("c10d::allreduce_").FromCollective("default", 17).Nan();
    run.Pass(3).Leaf("enc.0.weight", 2);
    runs.push_back(run.Build());
  }
  const Verdict verdict = Correlate(runs);
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "received");
}

TEST(Ranks, SamePlaceOnSeveralRanksIsOneIncident) {
  const auto overflow = [](int rank, uint32_t step) {
    RunBuilder run;
    run.Rank(rank).Step(step);
    run.Value(1).Produce("aten::exp").At("prob").PosInf();
    run.Pass(2).Root(1);
    return run.Build();
  };
  const Verdict verdict = Correlate({overflow(0, 9), overflow(1, 7)});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().rank(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().step(), 7);
  EXPECT_EQ(verdict.incidents(0).count(), 2u);
}

}  // namespace
}  // namespace nanwatch
