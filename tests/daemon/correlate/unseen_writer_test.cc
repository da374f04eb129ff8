// SPDX-License-Identifier: Apache-2.0
// What was bad in memory that no observed op has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/correlate/correlate.h"
#include "proto/wire/record.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;

// An op of the layer reads its weight, which has gone bad between two steps.
ValueBuilder& ReadBadWeight(RunBuilder& run, uint64_t ticket, const std::string& layer) {
  return run.Value(ticket)
      .External("aten::addmm")
      .At(layer)
      .FromOutside(wire::Target::kParameter, layer + ".weight")
      .WriterUnseen()
      .Nan();
}

// The last layer's, and what its pass makes of the first one's gradient.
RunBuilder SpoiltParameter(uint32_t flags = 0) {
  RunBuilder run;
  run.Step(5);
  ReadBadWeight(run, 1, "last").Flag(flags);
  run.Pass(2).Root(1).Leaf("last.weight", 1).Leaf("first.weight", 1);
  return run;
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
  RunBuilder run = SpoiltParameter(wire::ValueRecord::kUnseenLevel);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_THAT(verdict.incidents(0).origin().unseen(), ElementsAre("level"));
}

// No op was seen to write, so nobody can say that it did not.
TEST(UnseenWriter, OfAnUpdateIsBehindTheParametersWhoseGradientWasBad) {
  RunBuilder run = SpoiltParameter();
  run.Update(3);
  run.Step(6);
  ReadBadWeight(run, 10, "first");
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 1);
}

// The program went on to the next batch without a step, or a scaler left it out.
TEST(UnseenWriter, IsSomebodyElseWhereNoUpdateAppliedTheGradient) {
  RunBuilder same_step = SpoiltParameter();
  ReadBadWeight(same_step, 10, "first");
  EXPECT_EQ(Correlate({same_step.Build()}).incidents_size(), 2);
  RunBuilder skipped = SpoiltParameter();
  skipped.Update(3).Skipped();
  skipped.Step(6);
  ReadBadWeight(skipped, 10, "first");
  EXPECT_EQ(Correlate({skipped.Build()}).incidents_size(), 2);
}

TEST(UnseenWriter, IsSomebodyElseStepsLater) {
  RunBuilder run = SpoiltParameter();
  run.Step(7);
  ReadBadWeight(run, 10, "first");
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 2);
}

TEST(UnseenWriter, IsSomebodyElseWhereTheParametersWereReadAfterTheUpdate) {
  RunBuilder run = SpoiltParameter();
  run.Update(3).AllClean();
  run.Step(6);
  ReadBadWeight(run, 10, "first");
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 2);
}

// A gradient that C code spoils: the node's first op is not asked what it reads, the next one is.
RunBuilder SpoiltGradient(uint32_t flags, const std::string& reader) {
  RunBuilder run;
  run.Step(3);
  run.Value(1).Produce("aten::mm").Backward("AddmmBackward0").At("0").InPass(4).Flag(flags).Nan();
  run.Value(2)
      .Propagate("aten::sum")
      .Phase(wire::Phase::kBackward)
      .At(reader)
      .InPass(4)
      .FromOutside(wire::Target::kInputData, "")
      .WriterUnseen()
      .Nan();
  run.Pass(4).Leaf("0.weight", 1).Leaf("0.bias", 2);
  return run;
}

TEST(UnseenWriter, OfAGradientIsBehindAllThatItsNodeMadeOfIt) {
  const Verdict verdict =
      Correlate({SpoiltGradient(wire::ValueRecord::kUnseenInputs, "0").Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "external");
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::sum");
  EXPECT_FALSE(verdict.incidents(0).origin().exact());
}

TEST(UnseenWriter, OfAGradientIsNotBehindWhatWasMadeOfFiniteInputsOrInAnotherLayer) {
  EXPECT_EQ(Correlate({SpoiltGradient(0, "0").Build()}).incidents_size(), 2);
  EXPECT_EQ(
      Correlate({SpoiltGradient(wire::ValueRecord::kUnseenInputs, "1").Build()}).incidents_size(),
      2);
}

// An update in C that no op shows, and that has ruined all parameters at once.
TEST(UnseenWriter, OfAllParametersAtOnceIsOneAndTheStepIsNotKnown) {
  RunBuilder run;
  const auto read = [&run](uint64_t ticket, const std::string& first, const std::string& second) {
    run.Value(ticket)
        .External("aten::addmm")
        .At("0")
        .FromOutside(wire::Target::kParameter, first)
        .WriterUnseen()
        .FromOutside(wire::Target::kParameter, second)
        .WriterUnseen()
        .Nan();
  };
  Clocks clocks;
  const auto passed = [&](uint64_t passes) {
    clocks.set_passes(passes);
    clocks.set_micro_passes(static_cast<uint32_t>(passes));
    run.Clock(clocks);
  };
  passed(4);
  read(10, "0.weight", "0.bias");
  run.Pass(11).Root(10);
  passed(5);
  read(20, "0.bias", "0.weight");  // inputs are handed over in another order
  run.Pass(21).Root(20);
  run.Ended(clocks);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.param(), "0.weight");
  EXPECT_EQ(origin.step(), -1);
  EXPECT_EQ(origin.step_source(), "none");
  EXPECT_EQ(verdict.incidents(0).first_step(), -1);
  EXPECT_THAT(origin.unseen(), ElementsAre("writer"));
}

}  // namespace
}  // namespace nanwatch
