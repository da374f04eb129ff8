// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/steps_before.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/explain/explain.h"
#include "tests/daemon/correlate/run_builder.h"
#include "tests/daemon/watch/told_training.h"

namespace nanwatch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Twenty steps whose gradient norms are 0 to 19, and an overflow in the given step.
RunFacts OverflowAt(uint32_t step) {
  ToldTraining training;
  training.Steps(20, [](int i) { return Seen{.norm = i, .loss = 2.0 * i}; });
  RunBuilder run;
  run.Value(1).Produce("aten::mm").At("fc").Step(step).PosInf();
  run.Pass(2).Root(1).Leaf("fc.weight", 1);
  RunFacts facts = run.Build();
  *facts.mutable_training() = training.history();
  return facts;
}

TEST(StepsBefore, AnIncidentHasTheStepsThatEndedBeforeIt) {
  const Incident incident = Diagnose({OverflowAt(7)}).incidents(0);
  EXPECT_THAT(incident.gradient_norms_before(), ElementsAre(4, 5, 6));
  EXPECT_THAT(incident.losses_before(), ElementsAre(8, 10, 12));
}

// The steps kept are all later than it.
TEST(StepsBefore, ATrainingThatWentOnForLongSaysNothing) {
  EXPECT_THAT(Diagnose({OverflowAt(2)}).incidents(0).gradient_norms_before(), IsEmpty());
}

TEST(StepsBefore, StepsThatOnlyTheSegmentHasCountToo) {
  RunFacts facts = OverflowAt(22);
  for (int i = 0; i < 3; ++i) {
    StepSummary& step = *facts.add_steps_read();
    step.set_index(facts.training().next_index() + static_cast<uint64_t>(i));
    step.mutable_clocks()->set_optimizer_ranges(static_cast<uint32_t>(21 + i));
    step.set_gradient_norm(1000 + i);
  }
  const auto& norms = Diagnose({facts}).incidents(0).gradient_norms_before();
  ASSERT_GE(norms.size(), 2);
  EXPECT_EQ(norms[norms.size() - 1], 1001);
  EXPECT_EQ(norms[norms.size() - 2], 1000);
}

}  // namespace
}  // namespace nanwatch
