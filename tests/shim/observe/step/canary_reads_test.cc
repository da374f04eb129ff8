// SPDX-License-Identifier: Apache-2.0
// Calls of Python's in, records out: what is read where no op is watched.
#include "shim/observe/step/canary_reads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "proto/wire/escape_flags.h"
#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class CanaryReadsTest : public testing::Test {
 protected:
  CanaryReadsTest() { on_.level.SetWatched(wire::Level::kCanary); }
  void Result(const at::Tensor& tensor) {
    const at::TensorBase* tensors[] = {&tensor};
    on_.canary_reads.OnResults(&on_.thread, tensors, 1);
  }
  static at::Tensor Computed(float value) {
    at::Tensor tensor = at::full({4}, value);
    tensor.set_requires_grad(true);
    return tensor;
  }

  ObservedTraining on_;
};

TEST_F(CanaryReadsTest, RecordABadResultOfAModelAndHaveItExplainTheRest) {
  const at::Tensor result = Computed(kNan);
  Result(result);
  ASSERT_EQ(on_.Values().size(), 1u);
  EXPECT_EQ(on_.losses.BadResult().ticket, on_.Values()[0].header.ticket);
  EXPECT_EQ(on_.Values()[0].sources[0].kind, static_cast<uint8_t>(wire::SourceKind::kUnknown));
}

TEST_F(CanaryReadsTest, ForgetABadResultWithAFiniteOne) {
  Result(Computed(kNan));
  Result(Computed(1));
  EXPECT_EQ(on_.losses.BadResult().ticket, 0u);
}

TEST_F(CanaryReadsTest, ReadNoResultThatNeedsNoGradient) {
  Result(at::full({4}, kNan));
  EXPECT_TRUE(on_.Values().empty());
}

TEST_F(CanaryReadsTest, TakeAMaskForNoFault) {
  Result(Computed(-kInf));
  EXPECT_TRUE(on_.Values().empty());
}

TEST_F(CanaryReadsTest, RecordANumberThatPythonReads) {
  const at::Tensor number = at::full({1}, kNan);
  on_.canary_reads.OnNumberRead(&on_.thread, number, kNan);
  EXPECT_EQ(on_.Values().size(), 1u);
  const auto escapes = on_.Emitted<wire::EscapeRecord>(wire::RecordKind::kEscape);
  ASSERT_EQ(escapes.size(), 1u);
  EXPECT_EQ(escapes[0].source.value, on_.Values()[0].header.ticket);
}

TEST_F(CanaryReadsTest, RecordWhatIsAskedWhetherItIsFinite) {
  on_.canary_reads.OnAsked(&on_.thread, at::full({4}, kNan));
  EXPECT_EQ(on_.Values().size(), 1u);
  const auto escapes = on_.Emitted<wire::EscapeRecord>(wire::RecordKind::kEscape);
  ASSERT_EQ(escapes.size(), 1u);
  EXPECT_EQ(escapes[0].flags, uint32_t{wire::kAskedOnly}) << "no number was read";
}

TEST_F(CanaryReadsTest, LeaveAllToTheOpsWhereTheyAreWatched) {
  on_.level.SetWatched(wire::Level::kFull);
  Result(Computed(kNan));
  on_.canary_reads.OnNumberRead(&on_.thread, at::full({1}, kNan), kNan);
  EXPECT_TRUE(on_.Values().empty());
}

TEST_F(CanaryReadsTest, CountWhatIsRead) {
  Result(Computed(1));
  EXPECT_EQ(on_.thread.counters.tensors_checked, 1u);
  EXPECT_EQ(on_.thread.counters.bytes_checked, 16u);
}

TEST_F(CanaryReadsTest, RecordABadLossOnce) {
  const at::Tensor loss = Computed(kNan).sum();
  const PlainTensor plain = ObservedTraining::Plain(loss);
  on_.loss_reads.ReportBad(&on_.thread, plain, nullptr);
  on_.loss_reads.ReportBad(&on_.thread, plain, nullptr);
  EXPECT_EQ(on_.Values().size(), 1u);
  EXPECT_EQ(on_.losses.Bad().ticket, on_.Values()[0].header.ticket);
  EXPECT_EQ(on_.Emitted<wire::PassRecord>(wire::RecordKind::kPass).size(), 1u);
}

TEST_F(CanaryReadsTest, TakeTheLossThatAModelReturnsForTheStepsOwn) {
  const at::Tensor loss = at::full({}, 0.5f).set_requires_grad(true);
  const at::TensorBase* tensors[] = {&loss};
  on_.loss_reads.OnRootResult(&on_.thread, tensors, 1);
  double number = 0;
  EXPECT_TRUE(on_.losses.TakeOfStep(&number));
  EXPECT_EQ(number, 0.5);
}

TEST_F(CanaryReadsTest, TakeTheLossBeforeItIsScaledAndNoneAfter) {
  const at::Tensor loss = at::full({}, 0.5f).set_requires_grad(true);
  on_.loss_reads.OnScale(&on_.thread, &loss);
  const at::Tensor scaled = at::full({}, 512.0f).set_requires_grad(true);
  const at::TensorBase* const roots[] = {&scaled};
  on_.loss_reads.OnBackward(&on_.thread, roots, 1);
  double number = 0;
  EXPECT_TRUE(on_.losses.Last(&number));
  EXPECT_EQ(number, 0.5);
}

}  // namespace
}  // namespace nanwatch
