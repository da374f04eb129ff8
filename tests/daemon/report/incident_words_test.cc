// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/incident_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanwatch {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Incident Example() {
  Incident incident;
  incident.set_severity("error");
  Finding& origin = *incident.mutable_origin();
  origin.set_kind("op");
  origin.set_run("7f3a21c0ffffffff");
  origin.set_rank(2);
  origin.set_step(1117);
  origin.set_phase("forward");
  origin.set_layer("encoder.0.self_attn");
  origin.set_op("aten::_softmax");
  origin.set_class_("inf_to_nan");
  origin.set_exact(true);
  incident.add_reach("loss");
  incident.add_reach("parameter");
  return incident;
}

Verdict OfProgram(const std::string& program) {
  Verdict verdict;
  verdict.mutable_run()->set_program(program);
  return verdict;
}

TEST(IncidentWords, DoubtOfInputsDoesNotContradictThoseThatAreShown) {
  Finding origin = Example().origin();
  origin.set_class_("produce");
  origin.set_exact(false);
  origin.add_unseen("inputs");
  EXPECT_THAT(WhatText(origin), EndsWith("unless an input was already bad: not all of its inputs "
                                         "were checked"));
  TensorStats& input = *origin.add_inputs();
  EXPECT_EQ(WhatText(origin),
            "aten::_softmax, whose recorded inputs are finite; another input may "
            "have been bad already");
  input.set_nan(1);
  EXPECT_THAT(WhatText(origin), HasSubstr("unless an input was already bad"));
}

TEST(IncidentWords, AnIncidentIsOneSentence) {
  EXPECT_EQ(IncidentLine(OfProgram("train.py"), Example()),
            "ANOMALY train.py, run 7f3a21c0, rank 2: step 1,117, forward, encoder.0.self_attn, "
            "aten::_softmax, Inf became NaN; reached loss, parameter");
}

TEST(IncidentWords, WhatIsNotExactIsNotSaidAsIfItWere) {
  Incident incident = Example();
  incident.mutable_origin()->set_exact(false);
  incident.mutable_origin()->add_unseen("level");
  const std::string line = IncidentLine(OfProgram("train.py"), incident);
  EXPECT_THAT(line, HasSubstr("or an op before it that ran while fewer ops were checked"));
  EXPECT_THAT(line, Not(HasSubstr("Inf became NaN")));
}

TEST(IncidentWords, WhatARuleExcusesIsExpectedByIt) {
  Incident incident = Example();
  incident.set_severity("info");
  incident.set_expected_by("op=aten::_softmax");
  incident.clear_reach();
  const std::string line = IncidentLine(OfProgram(""), incident);
  EXPECT_THAT(line, StartsWith("expected run 7f3a21c0, rank 2: "));
  EXPECT_THAT(line, EndsWith(", expected by your rule 'op=aten::_softmax'; reached nothing"));
}

TEST(IncidentWords, AnIncidentThatEndedItsJobDidNotReachNothing) {
  Incident incident = Example();
  incident.set_ended_job(true);
  incident.clear_reach();
  EXPECT_THAT(IncidentLine(OfProgram("train.py"), incident),
              EndsWith("; an error ended the job before it reached anything"));
}

TEST(IncidentWords, TheProgramIsThatOfTheOriginsRun) {
  Verdict verdict = OfProgram("launcher.py");
  RunInfo& run = *verdict.add_runs();
  run.set_id("7f3a21c0ffffffff");
  run.set_program("worker.py");
  EXPECT_THAT(IncidentLine(verdict, Example()), StartsWith("ANOMALY worker.py, "));
}

TEST(IncidentWords, ForeignTextIsMadePrintable) {
  Incident incident = Example();
  incident.mutable_origin()->set_source("a\033[2Jb.py:1");
  EXPECT_THAT(IncidentLine(OfProgram("t\n.py"), incident),
              testing::AllOf(StartsWith("ANOMALY t?.py, "), HasSubstr("a?[2Jb.py:1")));
}

TEST(IncidentWords, ASummaryKeepsTheNameOfItsOpAndShortensTheLayer) {
  Incident incident = Example();
  incident.set_count(3);
  incident.set_first_step(4);
  incident.set_last_step(7);
  Finding& origin = *incident.mutable_origin();
  EXPECT_EQ(IncidentSummary(incident, 84),
            "aten::_softmax, Inf became NaN, encoder.0.self_attn: 3 findings, steps 4 to 7");
  origin.set_layer("backbone.encoder.layers.11.attention.self.projection.inner");
  origin.set_layer_type("Linear");
  EXPECT_EQ(IncidentSummary(incident, 84),
            "aten::_softmax, Inf became NaN, backbone.en...ner (Linear): 3 findings, steps 4 to 7");
  origin.set_kind("input_data");
  origin.set_class_("external");
  origin.set_op("aten::_scaled_dot_product_efficient_attention_backward");
  origin.set_exact(false);
  origin.add_unseen("level");
  const std::string summary = IncidentSummary(incident, 84);
  EXPECT_THAT(summary, StartsWith("already in the batch; first used by "
                                  "aten::_scaled_dot_product_efficient_attention_backward, "));
  EXPECT_THAT(summary, EndsWith(": 3 findings, steps 4 to 7"));
}

TEST(IncidentWords, AWarningIsOneSentence) {
  Warning warning;
  warning.set_severity("warning");
  warning.set_run("7f3a21c0ffffffff");
  warning.set_evidence("gradient norm 3.2e+06 at step 412");
  warning.set_cause("it grows");
  EXPECT_EQ(WarningLine(OfProgram("train.py"), warning),
            "warning train.py, run 7f3a21c0, rank 0: gradient norm 3.2e+06 at step 412; it grows");
}

}  // namespace
}  // namespace nanwatch
