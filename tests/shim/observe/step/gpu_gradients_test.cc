// SPDX-License-Identifier: Apache-2.0
// What a GPU says of gradients in, what is known of the update out.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "shim/observe/step/canary.h"
#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class GpuGradientsTest : public testing::Test {
 protected:
  // What was known where the step began: so many gradients, all on the GPU.
  static Gradients OnGpu(uint32_t count) {
    Gradients gradients;
    gradients.known = gradients.norm_known = gradients.waits_for_gpu = true;
    gradients.count = gradients.on_gpu = count;
    return gradients;
  }
  Gradients Settle(Gradients gradients) {
    on_gpu_.Settle(&on_.thread, "Optimizer.step#SGD.step", &gradients);
    return gradients;
  }

  ObservedTraining on_;
  canary::GpuGradients on_gpu_{on_.reports, on_.passes, on_.losses, on_.late};
  at::Tensor bad_ = at::full({2}, kNan);
};

TEST_F(GpuGradientsTest, GiveTheNormOfAllSums) {
  on_gpu_.AddSums(9, 1, 0);
  on_gpu_.AddSums(16, 1, 1);
  const Gradients gradients = Settle(OnGpu(2));
  EXPECT_EQ(gradients.norm, 5);
  EXPECT_TRUE(gradients.norm_known);
  EXPECT_EQ(gradients.zero, 1u);
  EXPECT_FALSE(gradients.waits_for_gpu);
}

TEST_F(GpuGradientsTest, KnowNoNormWhereOneWasNotSummed) {
  on_gpu_.AddSums(9, 1, 0);
  EXPECT_FALSE(Settle(OnGpu(2)).norm_known);
}

TEST_F(GpuGradientsTest, DivideByTheScaleThatTheOptimizerIsGiven) {
  Gradients gradients = OnGpu(1);
  gradients.scale_on_gpu = true;
  on_gpu_.AddSums(16, 1, 0);
  on_gpu_.SetScale(2);
  EXPECT_EQ(Settle(gradients).norm, 2);
}

TEST_F(GpuGradientsTest, KnowNoNormWhereTheScaleIsNone) {
  Gradients gradients = OnGpu(1);
  gradients.scale_on_gpu = true;
  on_gpu_.AddSums(16, 1, 0);
  EXPECT_FALSE(Settle(gradients).norm_known);
}

TEST_F(GpuGradientsTest, RecordABadOneAndItsPass) {
  on_gpu_.Report(&on_.thread, ObservedTraining::Plain(bad_), nullptr);
  const Gradients gradients = Settle(OnGpu(3));
  EXPECT_EQ(gradients.bad, 1u);
  EXPECT_TRUE(std::isnan(gradients.norm));
  ASSERT_EQ(on_.Values().size(), 1u);
  EXPECT_EQ(gradients.first_bad_value.ticket, on_.Values()[0].header.ticket);
  const auto passes = on_.Emitted<wire::PassRecord>(wire::RecordKind::kPass);
  ASSERT_EQ(passes.size(), 1u);
  EXPECT_EQ(passes[0].leaves, 3u);
  EXPECT_EQ(passes[0].leaves_bad, 1u);
}

TEST_F(GpuGradientsTest, HaveABadLossForTheCauseOfABadGradient) {
  on_.losses.RecordBad({42, 1});
  on_gpu_.Report(&on_.thread, ObservedTraining::Plain(bad_), nullptr);
  ASSERT_EQ(on_.Values().size(), 1u);
  ASSERT_EQ(on_.Values()[0].n_sources, 1);
  EXPECT_EQ(on_.Values()[0].sources[0].value, 42u);
}

TEST_F(GpuGradientsTest, RecordNoneThatWatchedOpsHaveMade) {
  on_gpu_.ReportWatched(ObservedTraining::Plain(bad_), nullptr);
  EXPECT_EQ(Settle(OnGpu(1)).bad, 1u);
  EXPECT_TRUE(on_.Values().empty());
}

TEST_F(GpuGradientsTest, ForgetAnUpdateWithTheNext) {
  on_gpu_.Report(&on_.thread, ObservedTraining::Plain(bad_), nullptr);
  on_gpu_.RecordUnseen();
  EXPECT_TRUE(Settle(OnGpu(1)).some_unseen);
  const Gradients next = Settle(OnGpu(0));
  EXPECT_EQ(next.bad, 0u);
  EXPECT_FALSE(next.some_unseen);
}

TEST_F(GpuGradientsTest, CallAnUpdateGuiltyThatWasGivenFiniteGradients) {
  on_gpu_.AddSums(1, 1, 0);
  (void)Settle(OnGpu(1));
  const at::Tensor state = at::full({2}, kNan);
  on_gpu_.ReportWritten(&on_.thread, ObservedTraining::Plain(state), nullptr, /*is_state=*/true);
  ASSERT_EQ(on_.Values().size(), 1u);
  EXPECT_EQ(on_.ClassOf({on_.Values()[0].header.ticket, 1}), wire::FindingClass::kProduce);
  EXPECT_EQ(on_.Values()[0].n_sources, 0);
}

TEST_F(GpuGradientsTest, DoNotCallItGuiltyWhereOneWasNotSeen) {
  on_gpu_.RecordUnseen();
  (void)Settle(OnGpu(1));
  const at::Tensor state = at::full({2}, kNan);
  on_gpu_.ReportWritten(&on_.thread, ObservedTraining::Plain(state), nullptr, /*is_state=*/true);
  EXPECT_EQ(on_.ClassOf({on_.Values().at(0).header.ticket, 1}), wire::FindingClass::kPropagate);
}

TEST_F(GpuGradientsTest, LeaveOutWhatAnUpdateThatSkippedItselfHasWritten) {
  Gradients gradients = OnGpu(0);
  gradients.skipped = true;
  (void)Settle(gradients);
  on_gpu_.ReportWritten(&on_.thread, ObservedTraining::Plain(bad_), nullptr, /*is_state=*/true);
  EXPECT_TRUE(on_.Values().empty());
}

}  // namespace
}  // namespace nanwatch
