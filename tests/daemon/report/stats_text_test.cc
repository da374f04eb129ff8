// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/stats_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/explain/parameter_reports.h"
#include "daemon/report/json_report.h"
#include "daemon/report/text_report.h"
#include "proto/wire/record.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

// Four parameters of a run's third look: one moves, one has a gradient of zeros, one none, and of
// one the weight is zero.
RunFacts Looked() {
  RunFacts facts;
  facts.mutable_run()->set_nonce(7);
  facts.mutable_state()->mutable_clocks()->add_optimizer_steps(400);
  StatsSnapshot& snapshot = *facts.add_stats_read();
  snapshot.set_number(2);
  snapshot.set_optimizer_class("SGD");
  snapshot.mutable_clocks()->add_optimizer_steps(300);
  snapshot.mutable_clocks()->set_optimizer_ranges(300);
  snapshot.set_on_gpu(2);
  for (const char* name : {"head.weight", "dead.weight", "lost.weight", "new.bias"}) {
    ParameterStats& parameter = *snapshot.add_parameters();
    parameter.set_name(name);
    parameter.set_element_type(static_cast<uint32_t>(wire::ElementType::kFloat32));
    parameter.set_has_gradient(std::string(name) != "lost.weight");
    if (parameter.has_gradient()) {
      parameter.set_gradient_norm(1);
      parameter.set_gradient_zero_share(std::string(name) == "dead.weight" ? 1 : 0.5);
    }
    parameter.set_update_norm(0.5);
    parameter.set_weight_norm(std::string(name) == "new.bias" ? 0 : 40);
  }
  snapshot.mutable_parameters(0)->set_update_norm(1);
  return facts;
}

Verdict CleanOf(const RunFacts& facts) {
  Verdict verdict;
  verdict.set_verdict("clean");
  verdict.mutable_run()->set_id("0000000000000007");
  verdict.add_runs();
  verdict.mutable_coverage()->set_tensors_checked(9);
  AddStats({facts}, verdict);
  return verdict;
}

TEST(StatsText, ACleanReportNamesTheLargestUpdatesAndWhatHasNoGradient) {
  const std::string report = TextReport(CleanOf(Looked()), {.width_columns = 400});
  EXPECT_THAT(
      report,
      HasSubstr("updates   step 300, SGD, 4 parameters, 2 left out (2 on a GPU): largest "
                "updates relative to the weights: head.weight 0.025, dead.weight 0.0125, "
                "lost.weight 0.0125; 1 with an all-zero gradient (dead.weight); 1 without a "
                "gradient (lost.weight)"));
}

TEST(StatsText, OnlyTheFirstNamesOfManyAreTold) {
  RunFacts facts = Looked();
  for (int i = 0; i < 5; ++i) facts.mutable_stats_read(0)->add_parameters()->set_name("more");
  EXPECT_THAT(StatsRow(CleanOf(facts), 400),
              HasSubstr("6 without a gradient (lost.weight, more, more, ...)"));
}

TEST(StatsText, NothingIsSaidWhereNothingWasLookedAt) {
  EXPECT_EQ(StatsRow(CleanOf(RunFacts()), 100), "");
  EXPECT_FALSE(CleanOf(RunFacts()).has_stats());
}

TEST(StatsText, TheDocumentHasEverySnapshotOnceByStep) {
  RunFacts facts = Looked();
  *facts.add_stats_read() = facts.stats_read(0);
  StatsSnapshot& older = *facts.add_stats_read();
  older.mutable_clocks()->add_optimizer_steps(100);
  facts.mutable_state()->set_stats_lost(3);
  const auto document = nlohmann::json::parse(JsonStats(ReportStats({facts}, "nightly")));
  EXPECT_EQ(document["schema"], "nanwatch.stats/1");
  EXPECT_EQ(document["job"], "nightly");
  EXPECT_EQ(document["lost"], 3);
  ASSERT_EQ(document["snapshots"].size(), 2u);
  EXPECT_EQ(document["snapshots"][0]["step"], 100);
  EXPECT_EQ(document["snapshots"][1]["step"], 300);
  const auto& parameters = document["snapshots"][1]["parameters"];
  EXPECT_EQ(parameters[0]["update_ratio"], 0.025);
  EXPECT_EQ(parameters[0]["dtype"], "float32");
  EXPECT_EQ(parameters[2]["gradient"], "none");
  EXPECT_TRUE(parameters[2]["gradient_norm"].is_null());
  EXPECT_TRUE(parameters[3]["update_ratio"].is_null()) << "its weight is zero";
}

TEST(StatsText, WhatIsStoredCountsWhereTheSegmentIsGone) {
  RunFacts facts = Looked();
  *facts.mutable_stats_stored() = facts.stats_read(0);
  facts.clear_stats_read();
  EXPECT_EQ(CleanOf(facts).stats().snapshot().step(), 300);
}

}  // namespace
}  // namespace nanwatch
