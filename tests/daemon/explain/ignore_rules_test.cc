// SPDX-License-Identifier: Apache-2.0
// The language of the user's rules, and what a rule does to a verdict.
#include "daemon/explain/ignore_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/explain/explain.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> TextsOf(const IgnoreRules& read) {
  std::vector<std::string> texts;
  for (const IgnoreRule& rule : read.rules) texts.push_back(rule.text);
  return texts;
}

std::string ProblemOf(std::string_view text) {
  const IgnoreRules read = ParseIgnoreRules(text);
  EXPECT_THAT(read.rules, IsEmpty()) << text;
  EXPECT_THAT(read.problems, SizeIs(1)) << text;
  return read.problems.empty() ? "" : read.problems[0];
}

TEST(IgnoreRules, EndAtASemicolonOrALineAndCommentsAtTheLine) {
  const IgnoreRules read = ParseIgnoreRules(
      "# masks; all of them\n"
      "  op=aten::log layer=encoder.mask*  phase=forward\tclass=produce ;; op=aten::div # why; "
      "not\r\n"
      "\n;layer=tower#2.*");
  EXPECT_THAT(read.problems, IsEmpty());
  EXPECT_THAT(TextsOf(read),
              ElementsAre("op=aten::log layer=encoder.mask*  phase=forward\tclass=produce",
                          "op=aten::div", "layer=tower#2.*"));
  EXPECT_EQ(read.rules[0].op, "aten::log");
  EXPECT_EQ(read.rules[0].layer, "encoder.mask*");
  EXPECT_EQ(read.rules[0].phase, "forward");
  EXPECT_EQ(read.rules[0].finding_class, "produce");
  EXPECT_EQ(read.rules[0].pattern, std::nullopt);
}

TEST(IgnoreRules, NothingIsNoRule) {
  for (const char* text : {"", " \n ;\t; \n", "# only words"}) {
    const IgnoreRules read = ParseIgnoreRules(text);
    EXPECT_THAT(read.rules, IsEmpty()) << text;
    EXPECT_THAT(read.problems, IsEmpty()) << text;
  }
}

TEST(IgnoreRules, MistakesAreNamedWithTheirRule) {
  EXPECT_THAT(ProblemOf("op=aten::log aten::div"),
              AllOf(HasSubstr("'op=aten::log aten::div'"),
                    HasSubstr("'aten::div' does not have the form FIELD=GLOB")));
  EXPECT_THAT(ProblemOf("opp=aten::log"), HasSubstr("no field 'opp'"));
  EXPECT_THAT(ProblemOf("op=a op=b"), HasSubstr("'op' is given twice"));
  EXPECT_THAT(ProblemOf("layer="), HasSubstr("'layer=' has no value"));
  EXPECT_THAT(ProblemOf("op=a phase=foward"), HasSubstr("no phase 'foward'; use one of forward"));
  EXPECT_THAT(ProblemOf("class=killed"), HasSubstr("no class 'killed'"));
  EXPECT_THAT(ProblemOf("pattern=softmax-full-row"), HasSubstr("no pattern 'softmax-full-row'"));
}

TEST(IgnoreRules, AMistakeDoesNotTouchTheRulesBesideIt) {
  const IgnoreRules read = ParseIgnoreRules("op=aten::log; opp=x; op=aten::div");
  EXPECT_THAT(TextsOf(read), ElementsAre("op=aten::log", "op=aten::div"));
  EXPECT_THAT(read.problems, SizeIs(1));
}

TEST(IgnoreRules, ManyMistakesAreCounted) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "word\n";
  const IgnoreRules read = ParseIgnoreRules(text);
  ASSERT_THAT(read.problems, SizeIs(9));
  EXPECT_THAT(read.problems.back(), HasSubstr("22 more rules"));
}

Incident Origin(const std::string& op, const std::string& layer) {
  Incident incident;
  incident.mutable_origin()->set_op(op);
  incident.mutable_origin()->set_layer(layer);
  incident.mutable_origin()->set_phase("forward");
  incident.mutable_origin()->set_class_("produce");
  incident.mutable_pattern()->set_id("log-of-zero");
  return incident;
}

bool Fits(const std::string& rule, const Incident& incident) {
  const IgnoreRules read = ParseIgnoreRules(rule);
  EXPECT_THAT(read.problems, IsEmpty());
  return FindRule(read.rules, incident) != nullptr;
}

TEST(IgnoreRules, EveryFieldThatIsGivenMustFit) {
  const Incident log = Origin("aten::log", "encoder.mask.0");
  EXPECT_TRUE(Fits("op=aten::log layer=encoder.mask* phase=forward class=produce", log));
  EXPECT_FALSE(Fits("op=aten::log layer=decoder.*", log));
  EXPECT_FALSE(Fits("op=aten::sqrt layer=encoder.*", log));
  EXPECT_FALSE(Fits("op=aten::log phase=backward", log));
  EXPECT_FALSE(Fits("op=aten::log class=inf_to_nan", log));
  EXPECT_TRUE(Fits("op=aten::sqrt; op=*::log", log)) << "one rule is enough";
  EXPECT_FALSE(Fits("", log));
}

TEST(IgnoreRules, TheEmptyLayerIsWrittenInQuotes) {
  EXPECT_TRUE(Fits("layer=\"\"", Origin("aten::log", "")));
  EXPECT_FALSE(Fits("layer=\"\"", Origin("aten::log", "encoder")));
}

// ---- verdicts -----------------------------------------------------------------------------------

Verdict DiagnoseWithRules(const std::vector<RunFacts>& runs, const std::string& rules) {
  return DiagnoseAsked(runs, {.further_rules = rules}).verdict;
}

RunBuilder LogReachesTheLoss() {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("mask").NegInf();
  run.Value(2).Propagate("aten::mean").From(1).NegInf();
  run.Pass(3).Root(2);
  return run;
}

TEST(RulesAndVerdict, AnIncidentWhoseOriginFitsIsExpectedAndSaysWhy) {
  const std::vector<RunFacts> runs = {LogReachesTheLoss().Build()};
  EXPECT_EQ(Diagnose(runs).verdict(), "anomaly");
  const Verdict verdict = DiagnoseWithRules(runs, "op=aten::log layer=mask");
  EXPECT_EQ(verdict.verdict(), "expected");
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).severity(), "info");
  EXPECT_EQ(verdict.incidents(0).expected_by(), "op=aten::log layer=mask");
  EXPECT_THAT(verdict.incidents(0).reach(), testing::Contains("loss"));
}

TEST(RulesAndVerdict, RulesComeWithTheJob) {
  RunFacts facts = LogReachesTheLoss().Build();
  facts.mutable_run()->set_ignore("op=aten::log\nnonsense\n");
  facts.mutable_run()->set_ignore_problem("the rules are longer than 7 bytes");
  RunFacts rank = facts;
  rank.mutable_run()->set_nonce(2);
  const Verdict verdict = Diagnose({facts, rank});
  EXPECT_EQ(verdict.verdict(), "expected");
  EXPECT_THAT(verdict.rule_problems(),
              ElementsAre(HasSubstr("'nonsense'"), "the rules are longer than 7 bytes"))
      << "each once, though both processes carry them";
}

TEST(RulesAndVerdict, ByThePatternThatWasFound) {
  RunBuilder run;
  run.Value(1).External("aten::mm").FromOutside(wire::Target::kInputData, "").Nan();
  run.Pass(2).Root(1);
  const std::vector<RunFacts> runs = {run.Build()};
  ASSERT_EQ(Diagnose(runs).incidents(0).pattern().id(), "nan-in-batch");
  const Verdict verdict = DiagnoseWithRules(runs, "pattern=nan-in-*");
  EXPECT_EQ(verdict.verdict(), "expected");
  EXPECT_EQ(verdict.incidents(0).pattern().id(), "nan-in-batch");
}

TEST(RulesAndVerdict, AnotherOriginStaysAnAnomalyAndComesFirst) {
  RunBuilder run = LogReachesTheLoss();
  run.Value(11).Produce("aten::sqrt").At("b").Nan();
  run.Pass(12).Root(11);
  const Verdict verdict = DiagnoseWithRules({run.Build()}, "op=aten::log");
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 2);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::sqrt");
  EXPECT_EQ(verdict.incidents(1).expected_by(), "op=aten::log");
}

// The earlier of two origins explains a value in which both meet; an excused one must not cover the
// other up.
TEST(RulesAndVerdict, AnExcusedOriginDoesNotHideAnotherThatMeetsIt) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("mask").NegInf();
  run.Value(2).Produce("aten::div").At("scores").Nan();
  run.Value(3).Propagate("aten::add").From(1).From(2).Nan();
  run.Pass(4).Root(3);
  const std::vector<RunFacts> runs = {run.Build()};
  ASSERT_EQ(Diagnose(runs).incidents(0).origin().op(), "aten::log");
  const Verdict verdict = DiagnoseWithRules(runs, "op=aten::log");
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::div");
  EXPECT_EQ(DiagnoseWithRules(runs, "op=aten::log; op=aten::div").verdict(), "expected");
}

TEST(RulesAndVerdict, AClassExcusesOnlyItselfAtTheSamePlace) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("mask").NegInf();
  run.Pass(2).Root(1);
  run.Value(11).Propagate("aten::cat").FromUnknown().NegInf();
  run.Value(12).InfToNan("aten::log").At("mask").Nan();
  run.Pass(13).Root(12);
  const Verdict verdict = DiagnoseWithRules({run.Build()}, "op=aten::log class=produce");
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "inf_to_nan");
}

TEST(RulesAndVerdict, WhatIsExpectedAnywayNeedsNoRule) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").NegInf();
  const Verdict verdict = DiagnoseWithRules({run.Build()}, "op=aten::log");
  EXPECT_EQ(verdict.verdict(), "expected");
  EXPECT_EQ(verdict.incidents(0).expected_by(), "");
}

TEST(RulesAndVerdict, ManyOriginsBehindOneAnotherAreAllExcused) {
  RunBuilder run;
  for (uint64_t i = 1; i <= 5; ++i) {
    run.Value(i).Produce("aten::div").At("layer." + std::to_string(i)).Nan();
  }
  ValueBuilder& sum = run.Value(6).Propagate("aten::sum").Nan();
  for (uint64_t i = 1; i <= 4; ++i) sum.From(i);
  run.Pass(7).Root(6);
  EXPECT_EQ(DiagnoseWithRules({run.Build()}, "layer=layer.*").verdict(), "expected");
}

}  // namespace
}  // namespace nanwatch
