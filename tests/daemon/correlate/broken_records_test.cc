// SPDX-License-Identifier: Apache-2.0
// Facts of a job that died, dropped records, or lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::Contains;

TEST(BrokenRecords, NothingObservedIsUnknownWithoutRuns) {
  const Verdict verdict = Correlate({});
  EXPECT_EQ(verdict.verdict(), "unknown");
  EXPECT_EQ(verdict.schema(), "nanwatch.verdict/1");
  EXPECT_TRUE(verdict.runs().empty());
}

TEST(BrokenRecords, HealthyRunIsClean) {
  EXPECT_EQ(Correlate({RunBuilder().Build()}).verdict(), "clean");
}

TEST(BrokenRecords, SuppressedSourceIsKnownByItsSite) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").At("valves.main").Step(5).Nan().Suppressed();
  run.Value(2).Propagate("aten::mean").From(1).Nan();
  run.Pass(3).Root(2);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::sqrt");
  EXPECT_EQ(verdict.incidents(0).origin().layer(), "valves.main");
  EXPECT_EQ(verdict.incidents(0).origin().step(), 5);
  EXPECT_TRUE(verdict.incidents(0).origin().outputs().empty());
}

TEST(BrokenRecords, CollectiveThatNamesItselfAsItsSourceIsNotFollowedForEver) {
  RunBuilder run;
  run.Value(1).Propagate("aten::add").FromCollective("gloo:0", 5).Nan();
  run.Pass(3).Root(1);
  run.CollectiveIn(4, "gloo:0", 5, 1);
  RunFacts facts = run.Build();
  for (Record& record : *facts.mutable_records()) {
    if (!record.has_collective()) continue;
    RecordSource& input = *record.mutable_collective()->mutable_input();
    input.set_kind(static_cast<uint32_t>(wire::SourceKind::kCollective));
    input.set_name("gloo:0");
    input.set_value(5);
  }
  const Verdict verdict = Correlate({facts});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "received");
}

// What each of two has received it has from the other, thousands of times over.
TEST(BrokenRecords, RanksThatGiveOnForEverAreFollowedSoFarAsTheStackGoes) {
  constexpr uint64_t kHops = 40'000;
  std::vector<RunBuilder> runs(2);
  for (const int rank : {0, 1}) runs[static_cast<size_t>(rank)].Rank(rank).Step(3);
  for (uint64_t hop = 1; hop <= kHops; ++hop) {
    RunBuilder& run = runs[hop % 2];
    run.Value(2 * hop).Received("c10d::recv_").FromCollective("pp", hop).Nan();
    run.CollectiveIn(2 * hop + 1, "pp", hop - 1, 2 * hop);
    if (hop < 3) run.Pass(3 * kHops + hop).Leaf("enc.0.weight", 2 * hop);
  }
  const Verdict verdict = Correlate({runs[0].Build(), runs[1].Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "received");
}

TEST(BrokenRecords, SuppressedMaskIsStillAMask) {
  RunBuilder run;
  run.Value(1).Scalar("aten::masked_fill").Step(0).NegInf();
  run.Value(11).Scalar("aten::masked_fill").Step(5).NegInf().Suppressed();
  run.Value(12).InfToNan("aten::_softmax").From(11).Nan();
  run.Pass(13).Root(12);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).origin().op(), "aten::_softmax");
}

TEST(BrokenRecords, SuppressedLinkTakesTheChainOfItsPlaceWithTheStepOfItsConsumer) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").At("a").Step(1).Nan();
  run.Value(2).Propagate("aten::mul").At("b").From(1).Nan();
  run.Value(12).Propagate("aten::mul").At("b").Step(7).From(11).Nan().Suppressed();
  run.Value(13).Propagate("aten::mean").From(12).Nan();
  run.Pass(14).Root(13);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::div");
  EXPECT_EQ(verdict.incidents(0).origin().step(), 7);
}

TEST(BrokenRecords, ChainThatBreaksOffIsToldAsInexact) {
  RunBuilder run;
  run.Value(2).Propagate("aten::addmm").At("fc").FromUnknown().Nan();
  run.Pass(3).Root(2);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_FALSE(verdict.incidents(0).origin().exact());
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::addmm");
}

TEST(BrokenRecords, BadParameterOfUnknownCauseIsAnUnknownOriginWithItsName) {
  RunBuilder run;
  run.Step(4);
  run.Update(1).UnknownParameter("fc.weight");
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.kind(), "unknown");
  EXPECT_EQ(origin.param(), "fc.weight");
  EXPECT_EQ(origin.layer(), "fc");
  EXPECT_FALSE(origin.exact());
}

TEST(BrokenRecords, ParameterOfUnknownCauseFollowsTheBadGradientBeforeIt) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").At("model").Nan();
  run.Pass(2).Root(1).Leaf("fc.weight", 1);
  run.Update(3).UnknownParameter("fc.weight");
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::sqrt");
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("parameter"));
}

TEST(BrokenRecords, FirstReachStandsInForLostUpdateRecords) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").Backward("SqrtBackward0").At("model").Nan();
  run.FirstReach(wire::Reach::kParameter, 1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("parameter"));
}

TEST(BrokenRecords, BadValuesWithoutAnyRecordAreNotCalledClean) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_values_bad(3);
  EXPECT_EQ(Correlate({facts}).verdict(), "unknown");
  EXPECT_EQ(Correlate({facts}).unknown_because(), "values_not_kept");
}

TEST(BrokenRecords, OrderOfRecordsDoesNotMatter) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").At("a").Nan();
  run.Value(2).Propagate("aten::mean").From(1).Nan();
  run.Pass(3).Root(2);
  RunFacts facts = run.Build();
  const std::string in_order = Correlate({facts}).SerializeAsString();
  std::reverse(facts.mutable_records()->pointer_begin(), facts.mutable_records()->pointer_end());
  EXPECT_EQ(Correlate({facts}).SerializeAsString(), in_order);
}

TEST(BrokenRecords, CyclesDuplicatesAndWildNumbersAreSurvived) {
  RunFacts facts;
  for (uint64_t ticket : {5, 5, 6}) {
    Record& record = *facts.add_records();
    record.set_ticket(ticket);
    ValueFact& value = *record.mutable_value();
    value.set_site(4'000'000'000u);
    value.set_flags(0xffffffff);
    for (uint64_t from : {5ull, 6ull, 7ull, ~0ull}) {
      RecordSource& source = *value.add_sources();
      source.set_kind(1);
      source.set_value(from);
      source.set_site(77);
    }
    value.add_sources()->set_kind(200);
    RecordTensor& output = *value.add_outputs();
    output.set_element_type(99);
    output.set_first_bad(1'000'000);
    output.set_ndim(2);
    output.add_shape(-5);
    output.add_shape(std::numeric_limits<int64_t>::max());
  }
  Site& site = *facts.add_sites();
  site.set_id(77);
  site.set_finding_class(250);
  site.set_phase(250);
  PassFact& pass = *facts.add_records()->mutable_pass();
  pass.set_root_value(6);
  pass.set_leaves_bad(3);
  const Verdict verdict = Correlate({facts});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).origin().step(), -1);
}

}  // namespace
}  // namespace nanwatch
