// SPDX-License-Identifier: Apache-2.0
// How a verdict followed from the records, in the words of a report.
#include "daemon/correlate/reasons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Explanation Explained(const RunBuilder& run, uint32_t incident = 1) {
  return Correlate({run.Build()}, {}, incident).explanation;
}

std::vector<std::string> Texts(const Explanation& explanation, std::string_view about) {
  std::vector<std::string> texts;
  for (const ExplanationStep& step : explanation.steps()) {
    if (step.about() == about) texts.push_back(step.text());
  }
  return texts;
}

// A padded sequence: mask, softmax, loss, parameters.
RunBuilder MaskedRow() {
  RunBuilder run;
  run.Step(46);
  run.Value(1).Scalar("aten::masked_fill").At("attn").NegInf();
  run.Value(2).InfToNan("aten::_softmax").At("attn").From(1).Nan();
  run.Value(3).Propagate("aten::nll_loss_forward").From(2).Nan();
  run.Pass(9).Root(3).Leaf("emb.weight", 3);
  run.Update(10).Parameter("emb.weight", 3);
  return run;
}

TEST(Reasons, TellTheWholeWayFromTheMaskToTheParameters) {
  const Explanation explanation = Explained(MaskedRow());
  EXPECT_EQ(explanation.schema(), "nanwatch.explanation/1");
  EXPECT_EQ(explanation.verdict(), "anomaly");
  EXPECT_EQ(explanation.severity(), "critical");
  EXPECT_THAT(Texts(explanation, "origin"),
              ElementsAre("record 2 (aten::_softmax, attn, forward, step 46) is the origin: its "
                          "input was a mask, which is not an error; the NaN starts here"));
  EXPECT_THAT(
      Texts(explanation, "earlier"),
      ElementsAre(AllOf(HasSubstr("record 1 (aten::masked_fill, attn, forward, step 46) was one of "
                                  "its inputs and held -Inf, but is not the origin"),
                        HasSubstr("wrote on purpose"))));
  EXPECT_THAT(Texts(explanation, "class"),
              ElementsAre(AllOf(HasSubstr("class inf_to_nan"), HasSubstr("the op wrote NaN"))));
  EXPECT_THAT(
      Texts(explanation, "link"),
      ElementsAre(
          "record 3 (aten::nll_loss_forward, outside any module, forward, step 46) is bad because "
          "its input from record 2 (aten::_softmax, attn, forward, step 46) was bad"));
  EXPECT_THAT(Texts(explanation, "reach"),
              ElementsAre(HasSubstr("activations: 2 op calls"),
                          AllOf(HasSubstr("the loss: record 9, step 46"),
                                HasSubstr("made by record 3 (aten::nll")),
                          AllOf(HasSubstr("a gradient: record 9"), HasSubstr("(emb.weight)")),
                          AllOf(HasSubstr("a parameter: record 10"), HasSubstr("(emb.weight)"))));
  EXPECT_THAT(Texts(explanation, "severity"),
              ElementsAre(HasSubstr("severity critical: it stays")));
}

TEST(Reasons, EveryStepNamesItsRecordForPrograms) {
  const Explanation explanation = Explained(MaskedRow());
  const ExplanationStep& origin = explanation.steps(0);
  EXPECT_EQ(origin.ticket(), 2u);
  EXPECT_EQ(origin.op(), "aten::_softmax");
  EXPECT_EQ(origin.layer(), "attn");
  EXPECT_EQ(origin.step(), 46);
}

TEST(Reasons, SayWhetherFiniteInputsWereSeenOrTakenForGranted) {
  RunBuilder seen;
  seen.Value(1).Produce("aten::sqrt").Nan();
  EXPECT_THAT(Texts(Explained(seen), "origin"),
              ElementsAre(HasSubstr("all its tensor inputs were checked and were finite")));
  RunBuilder unseen;
  unseen.Value(1).Produce("aten::sqrt").InputsUnseen().Nan();
  EXPECT_THAT(Texts(Explained(unseen), "origin"),
              ElementsAre(HasSubstr("are assumed to have been finite")));
}

TEST(Reasons, CallTheOutermostModuleByItsType) {
  const auto origin_text = [](const std::string& layer, const std::string& type) {
    RunBuilder run;
    run.Value(1).Produce("aten::sqrt").At(layer, type).Nan();
    return Texts(Explained(run), "origin");
  };
  EXPECT_THAT(origin_text("", "Net"),
              ElementsAre(HasSubstr("record 1 (aten::sqrt, the whole model (Net), forward, ")));
  EXPECT_THAT(origin_text("fc", ""), ElementsAre(HasSubstr("record 1 (aten::sqrt, fc, forward, ")));
  EXPECT_THAT(origin_text("", ""),
              ElementsAre(HasSubstr("record 1 (aten::sqrt, outside any module, forward, ")));
}

TEST(Reasons, NameTheBatchThatWasBadFromTheStart) {
  RunBuilder run;
  run.Value(1).External("aten::mm").FromOutside(wire::Target::kInputData, "").Nan();
  run.Pass(2).Root(1);
  EXPECT_THAT(Texts(Explained(run), "origin"),
              ElementsAre(HasSubstr("before any observed op wrote to it; the input is the batch")));
}

TEST(Reasons, AdmitAChainThatBreaksOff) {
  RunBuilder run;
  run.Value(5).Propagate("aten::add").FromUnknown().Nan();
  run.Pass(6).Root(5);
  EXPECT_THAT(Texts(Explained(run), "origin"), ElementsAre(HasSubstr("the chain ends here")));
}

TEST(Reasons, SayWhyAnEarlierIncidentIsAnother) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("a").Nan();
  run.Value(3).Produce("aten::sqrt").At("b").Nan();
  run.Pass(4).Root(3);
  const Explanation explanation = Explained(run);
  EXPECT_THAT(
      Texts(explanation, "earlier"),
      ElementsAre(HasSubstr(
          "record 1 (aten::log, a, forward, step 0) ran earlier but belongs to another incident")));
}

TEST(Reasons, SayWhyNothingIsWrong) {
  RunBuilder dead;
  dead.Value(1).Produce("aten::log").Nan();
  EXPECT_THAT(Texts(Explained(dead), "severity"),
              ElementsAre(HasSubstr("no record leads from it to a loss")));
  RunBuilder skipped;
  skipped.Value(1).Produce("aten::mul").Backward("MulBackward0").At("fc").PosInf();
  skipped.Pass(2).Leaf("fc.weight", 1);
  skipped.ScalerSkip(3, 65536, 1);
  const Explanation explanation = Explained(skipped);
  EXPECT_THAT(Texts(explanation, "reach"),
              Contains(AllOf(HasSubstr("a gradient"), HasSubstr("a GradScaler found it"))));
  EXPECT_THAT(Texts(explanation, "severity"), ElementsAre(HasSubstr("skipped by a GradScaler")));
}

TEST(Reasons, BlameTheLossForWhatItsBackwardMakes) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").At("ratio").Nan();
  run.Pass(2).Root(1).Number(1);
  run.Value(3).Produce("aten::reciprocal").Backward("DivBackward0").At("ratio").InPass(1).Nan();
  run.Pass(4).Number(1).Leaf("w", 3);
  EXPECT_THAT(Texts(Explained(run), "link"),
              Contains(AllOf(HasSubstr("record 3"),
                             HasSubstr("started from a loss that was already bad"))));
}

TEST(Reasons, OfAnIncidentThatIsNotThereAreNone) {
  EXPECT_THAT(Explained(MaskedRow(), 7).steps(), IsEmpty());
  EXPECT_THAT(Explained(MaskedRow(), 0).steps(), IsEmpty());
  EXPECT_THAT(Correlate({}, {}, 1).explanation.steps(), IsEmpty());
}

TEST(Reasons, OfARuleSayThatItSufficed) {
  const RunFacts facts = MaskedRow().Build();
  const Correlation first = Correlate({facts}, {});
  const Correlation excused = Correlate({facts}, {{first.excuse_keys[0], "op=aten::_softmax"}}, 1);
  EXPECT_EQ(excused.verdict.verdict(), "expected");
  EXPECT_THAT(Texts(excused.explanation, "severity"),
              ElementsAre(HasSubstr("one of your ignore rules calls it expected")));
}

}  // namespace
}  // namespace nanwatch
