// SPDX-License-Identifier: Apache-2.0
// What was bad in memory that no observed op has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "proto/wire/record.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;

// A parameter of the last layer has gone bad between two steps.
RunBuilder SpoiltParameter() {
  RunBuilder run;
  run.Step(5);
  run.Value(1)
      .External("aten::addmm")
      .At("last")
      .FromOutside(wire::Target::kParameter, "last.weight")
      .WriterUnseen()
      .Nan();
  run.Pass(2).Root(1).Leaf("last.weight", 1).Leaf("first.weight", 1);
  return run;
}

void ReadFirstWeight(RunBuilder& run) {
  run.Value(10)
      .External("aten::addmm")
      .At("first")
      .FromOutside(wire::Target::kParameter, "first.weight")
      .WriterUnseen()
      .Nan();
}

TEST(UnseenWriter, MakesTheOriginInexact) {
  const Verdict verdict = Correlate({SpoiltParameter().Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.kind(), "parameter");
  EXPECT_FALSE(origin.exact());
  EXPECT_THAT(origin.unseen(), ElementsAre("writer"));
}

TEST(UnseenWriter, IsNotAssumedWhereOpsRanUnchecked) {
  RunBuilder run;
  run.Step(5);
  run.Value(1)
      .External("aten::addmm")
      .At("last")
      .FromOutside(wire::Target::kParameter, "last.weight")
      .WriterUnseen()
      .Flag(wire::ValueRecord::kUnseenLevel)
      .Nan();
  run.Pass(2).Root(1);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_THAT(verdict.incidents(0).origin().unseen(), ElementsAre("level"));
}

// No op was seen to write, so nobody can say that it did not.
TEST(UnseenWriter, OfAnUpdateIsBehindTheParametersWhoseGradientWasBad) {
  RunBuilder run = SpoiltParameter();
  run.Update(3);
  run.Step(6);
  ReadFirstWeight(run);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 1);
}

// The program went on to the next batch without a step, or a scaler left it out.
TEST(UnseenWriter, IsSomebodyElseWhereNoUpdateAppliedTheGradient) {
  RunBuilder same_step = SpoiltParameter();
  ReadFirstWeight(same_step);
  EXPECT_EQ(Correlate({same_step.Build()}).incidents_size(), 2);
  RunBuilder skipped = SpoiltParameter();
  skipped.Update(3).Skipped();
  skipped.Step(6);
  ReadFirstWeight(skipped);
  EXPECT_EQ(Correlate({skipped.Build()}).incidents_size(), 2);
}

TEST(UnseenWriter, IsSomebodyElseStepsLater) {
  RunBuilder run = SpoiltParameter();
  run.Step(7);
  ReadFirstWeight(run);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 2);
}

TEST(UnseenWriter, IsSomebodyElseWhereTheParametersWereReadAfterTheUpdate) {
  RunBuilder run = SpoiltParameter();
  run.Update(3).AllClean();
  run.Step(6);
  ReadFirstWeight(run);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 2);
}

}  // namespace
}  // namespace nanwatch
