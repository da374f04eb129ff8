// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "proto/wire/record.h"
#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using Outcome = Finished::Outcome;

class Launching : public CheckerTest {};

TEST_F(Launching, TakesTheShortKernelForFewTensorsAndTheLongOneForMany) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  EXPECT_EQ(Check(stream, {Clean(), Clean()}, {Clean(), Clean()}).skip, Skip::kNone);
  EXPECT_EQ(Check(stream, {Clean(), Clean(), Clean()}, {Clean(), Clean()}).skip, Skip::kNone);
  fake_cuda_run_all();
  EXPECT_EQ(FewLaunches(), 1u);
  EXPECT_EQ(ManyLaunches(), 1u);
}

TEST_F(Launching, MakesThreeLaunchesOfTwentyOutputs) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<DeviceTensor> outputs(20, Clean());
  outputs[9] = Bad();
  outputs[19] = Tensor({-kInf});
  const Enqueued enqueued = Check(stream, outputs, {Clean()});
  EXPECT_EQ(enqueued.launches, 3u);
  const std::vector<Told> told = RunAndPoll({stream});
  const uint64_t first = enqueued.first_ticket;
  ASSERT_THAT(TicketsOf(told), ElementsAre(first, first + 1, first + 2));
  EXPECT_EQ(told[0].outcome, Outcome::kClean);
  EXPECT_EQ(told[1].result.output_kinds[1], wire::kHasNan);
  EXPECT_EQ(told[2].result.output_kinds[3], wire::kHasNegInf);
}

TEST_F(Launching, CountsTheInputsThatItHasNoRoomFor) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<DeviceTensor> inputs(11, Clean());
  inputs[7] = Bad();
  EXPECT_EQ(Check(stream, {Bad()}, inputs).skip, Skip::kNone);
  EXPECT_EQ(checker_->Counters().inputs_left_out, 3u);
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].result.input_kinds[6], 0);
  EXPECT_EQ(told[0].result.input_kinds[7], wire::kHasNan);
}

TEST_F(Launching, LeavesAnOpAloneThatWroteNoElement) {
  MakeReady();
  const size_t before = fake_cuda_log_size();
  EXPECT_EQ(Check(nullptr, {}).skip, Skip::kNothingToCheck);
  EXPECT_EQ(Check(nullptr, {Tensor({})}, {Bad()}).skip, Skip::kNothingToCheck);
  EXPECT_EQ(fake_cuda_log_size(), before);
}

TEST_F(Launching, PassesAnyCountAndAnyElementAddress) {
  options_.slots = 256;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (int64_t count = 1; count <= 67; ++count) {
    std::vector<float> values(static_cast<size_t>(count) + 2, kNan);  // bad on both sides, too
    for (int64_t i = 1; i <= count; ++i) values[static_cast<size_t>(i)] = i == count ? kInf : 1;
    DeviceTensor tensor = Tensor(values);
    tensor.data += sizeof(float);
    tensor.numel = count;
    CheckOne(stream, tensor);
  }
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_EQ(told.size(), 67u);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].result.outputs[0].first_bad, i);
    EXPECT_EQ(told[i].result.outputs[0].pos_inf, 1u);
    EXPECT_EQ(told[i].result.outputs[0].nan, 0u);
  }
}

TEST_F(Launching, AsksTheKernelsOwnRuleForTheNumberOfBlocks) {
  MakeReady(1);
  fake_cuda_set_device(1);
  EXPECT_EQ(Check(fake_cuda_new_stream(1), {Clean(), Clean()}, {}, 1).skip, Skip::kNone);
  fake_cuda_run_all();
  EXPECT_EQ(LastGrid(), 2101);  // the fake's device 1 has 101 multiprocessors
}

// No allocation, no copy, no wait: what a clean op of the job pays.
TEST_F(Launching, CostsACleanOpFourCallsOfTheDriver) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const size_t before = fake_cuda_log_size();
  CheckOne(stream, Clean());
  EXPECT_THAT(LogSince(before), ElementsAre("cuCtxGetCurrent", "cuStreamIsCapturing",
                                            "cuStreamGetId", "cuLaunchKernel"));
}

TEST_F(Launching, LeavesTheCurrentContextAsItWasFound) {
  MakeReady(0);
  MakeReady(1);
  void* streams[] = {fake_cuda_new_stream(0), fake_cuda_new_stream(1)};
  for (const int current : {0, 1, -1}) {
    fake_cuda_set_device(current);
    for (const int device : {0, 1}) {
      CheckOne(streams[device], Clean(), device);
      EXPECT_EQ(checker_->AddStep(device, static_cast<CuStream>(streams[device])), Skip::kNone);
      EXPECT_EQ(checker_->Flush(device, static_cast<CuStream>(streams[device])), Skip::kNone);
      EXPECT_EQ(fake_cuda_current_device(), current);
      EXPECT_EQ(fake_cuda_context_depth(), current < 0 ? 0 : 1);
    }
  }
}

TEST_F(Launching, TakesTheDefaultStreamOfTheTensorsDeviceNotOfTheCurrentOne) {
  MakeReady(0);
  MakeReady(1);
  CheckOne(nullptr, Bad(), 1);
  EXPECT_EQ(fake_cuda_queued(nullptr), 0u);
  fake_cuda_set_device(1);
  EXPECT_EQ(fake_cuda_queued(nullptr), 1u);
  const std::vector<Told> told = RunAndPoll({nullptr}, 1);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].device, 1);
  EXPECT_EQ(told[0].outcome, Outcome::kBad);
}

// Of a green context, say: stream 0 is its own then, and ours would not be behind the op.
TEST_F(Launching, LeavesTheDefaultStreamOfAnotherContextOfTheDeviceAlone) {
  MakeReady();
  const CuStream defaults[] = {nullptr, reinterpret_cast<CuStream>(kCuStreamLegacy),
                               reinterpret_cast<CuStream>(kCuStreamPerThread)};
  CheckOne(nullptr, Bad());
  fake_cuda_set_other_context(0);
  const size_t before = fake_cuda_log_size();
  const size_t launches = fake_cuda_calls("cuLaunchKernel");
  for (const CuStream stream : defaults) {
    EXPECT_EQ(Check(stream, {Bad()}).skip, Skip::kForeignContext);
    EXPECT_EQ(checker_->Mark(0, stream).skip, Skip::kForeignContext);
    EXPECT_EQ(checker_->AddStep(0, stream), Skip::kForeignContext);
    EXPECT_EQ(checker_->CapturedInto(0, stream), 0u);
  }
  EXPECT_EQ(Skips(Skip::kForeignContext), 9u);
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), launches);
  EXPECT_THAT(LogSince(before), Not(Contains("cuCtxPushCurrent_v2")));
  // Streams of their own, and what is asked of the primary context's default stream, as ever.
  void* stream = fake_cuda_new_stream(0);
  CheckOne(stream, Bad());
  EXPECT_EQ(RunAndPoll({nullptr, stream}).size(), 2u);
  EXPECT_EQ(fake_cuda_context_depth(), 1);
  EXPECT_EQ(checker_->Reason(0), nullptr);
  fake_cuda_set_device(1);
  EXPECT_EQ(Check(nullptr, {Bad()}).skip, Skip::kNone) << "of another device it does not matter";
}

TEST_F(Launching, TakesADefaultStreamForItsOwnWhereTheContextsDeviceCannotBeAsked) {
  driver_.context_get_device = nullptr;
  MakeReady();
  fake_cuda_set_other_context(0);
  EXPECT_EQ(Check(nullptr, {Bad()}).skip, Skip::kNone);
}

TEST_F(Launching, IsNotSetUpForTheDefaultStreamOfAnotherContext) {
  Make();
  fake_cuda_set_other_context(0);
  EXPECT_EQ(Check(nullptr, {Bad()}).skip, Skip::kForeignContext);
  fake_cuda_set_device(0);
  MakeReady();
}

// Without that launch what was counted long ago would be held against the next bad step.
TEST_F(Launching, TellsOfTheStepsThatWereCleanOnceNothingIsLeftOfWhatWasCounted) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const auto launches_of_steps = [&](int steps) {
    const size_t before = fake_cuda_launches("nanwatch_add_step");
    for (int i = 0; i < steps; ++i) {
      EXPECT_EQ(checker_->AddStep(0, static_cast<CuStream>(stream)), Skip::kNone);
    }
    return fake_cuda_launches("nanwatch_add_step") - before;
  };
  EXPECT_EQ(launches_of_steps(200), 0u) << "nothing was counted";
  CheckOne(stream, Bad());
  EXPECT_EQ(RunAndPoll({stream}).size(), 1u);
  EXPECT_EQ(launches_of_steps(1), 1u);
  EXPECT_EQ(launches_of_steps(kStepsUntilForgotten - 1), 0u);
  EXPECT_EQ(launches_of_steps(1), 1u);
  EXPECT_EQ(launches_of_steps(200), 0u);
}

// What was counted is forgotten by a launch; a step in which nothing was counted needs none.
TEST_F(Launching, CountsAStepOnlyWhereSomethingBadWasToldSinceTheLast) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const auto steps_after = [&](const DeviceTensor& tensor) {
    CheckOne(stream, tensor);
    EXPECT_EQ(RunAndPoll({stream}).size(), 1u);
    EXPECT_EQ(checker_->AddStep(0, static_cast<CuStream>(stream)), Skip::kNone);
    EXPECT_EQ(checker_->AddStep(0, static_cast<CuStream>(stream)), Skip::kNone);
    CheckOne(stream, Bad());
    const std::vector<Told> told = RunAndPoll({stream});
    EXPECT_EQ(told.size(), 1u);
    return told.at(0).result.step;
  };
  EXPECT_EQ(steps_after(Clean()), 0u);
  EXPECT_EQ(steps_after(Bad()), 1u);
}

TEST_F(Launching, SaysWhichDeviceNumbersItDoesNotKnow) {
  Make();
  EXPECT_EQ(Check(nullptr, {Clean()}, {}, -1).skip, Skip::kNoSuchDevice);
  EXPECT_EQ(Check(nullptr, {Clean()}, {}, kDevicesMax).skip, Skip::kNoSuchDevice);
  EXPECT_EQ(checker_->AddStep(kDevicesMax, nullptr), Skip::kNoSuchDevice);
  EXPECT_EQ(checker_->Flush(-1, nullptr), Skip::kNoSuchDevice);
  EXPECT_EQ(Skips(Skip::kNoSuchDevice), 4u);
}

}  // namespace
}  // namespace nanwatch::device
