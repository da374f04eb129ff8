// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>

#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using Outcome = Finished::Outcome;

class SettingUp : public CheckerTest {
 protected:
  // A bad tensor is found on the device.
  void ExpectChecks() {
    void* stream = fake_cuda_new_stream(0);
    CheckOne(stream, Bad());
    const std::vector<Told> told = RunAndPoll({stream});
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].outcome, Outcome::kBad);
  }
  void ExpectDown(const std::string& words) {
    EXPECT_EQ(Check(nullptr, {Clean()}).skip, Skip::kDriverError);
    const size_t before = fake_cuda_log_size();
    EXPECT_EQ(Check(nullptr, {Clean()}).skip, Skip::kSteppedDown);
    EXPECT_EQ(fake_cuda_log_size(), before);  // for good, and silently
    ASSERT_NE(checker_->Reason(0), nullptr);
    EXPECT_THAT(checker_->Reason(0), HasSubstr(words));
  }
};

TEST_F(SettingUp, IsNotDoneForADriverThatLacksWhatItNeedsOrABuildWithoutKernels) {
  Driver incomplete = driver_;
  incomplete.absent_required = "cuLaunchKernel";
  EXPECT_EQ(DeviceChecker::Create(incomplete, options_), nullptr);
  options_.image_bytes = 0;
  EXPECT_EQ(DeviceChecker::Create(driver_, options_), nullptr);
}

TEST_F(SettingUp, BeginsWithTheFirstTensorOfTheDeviceAndEndsOnTheDevice) {
  Make();
  EXPECT_EQ(fake_cuda_log_size(), 0u);
  EXPECT_EQ(Check(nullptr, {Bad()}).skip, Skip::kStarting);
  EXPECT_EQ(Check(nullptr, {Bad()}).skip, Skip::kStarting);
  EXPECT_FALSE(checker_->Ready(0));
  EXPECT_EQ(checker_->AddStep(0, nullptr), Skip::kStarting);
  EXPECT_EQ(fake_cuda_calls("cuModuleLoadDataEx"), 1u);
  fake_cuda_run_all();
  EXPECT_TRUE(checker_->Ready(0));
  EXPECT_FALSE(checker_->Ready(1));
  EXPECT_TRUE(checker_->UsesGivenMemory(0));
  ExpectChecks();
}

TEST_F(SettingUp, RunsEachKernelOnceOnAStreamOfItsOwn) {
  Make();
  void* stream = fake_cuda_new_stream(0);
  EXPECT_EQ(Check(stream, {Bad()}).skip, Skip::kStarting);
  EXPECT_EQ(fake_cuda_queued(stream), 0u);
  EXPECT_EQ(fake_cuda_queued(nullptr), 0u);
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 8u);
  EXPECT_EQ(fake_cuda_calls("cuStreamCreate"), 1u);
}

TEST_F(SettingUp, LooksAtTheTensorItBeganWith) {
  options_.warm_up_wait_ns = 10'000'000'000;
  fake_cuda_set_own_lag(5);
  Make();
  void* stream = fake_cuda_new_stream(0);
  CheckOne(stream, Bad());
  EXPECT_EQ(Skips(Skip::kStarting), 0u);
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].outcome, Outcome::kBad);
}

TEST_F(SettingUp, IsNotWaitedForWhereTheDeviceIsBusy) {
  options_.warm_up_wait_ns = 20'000'000;
  Make();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(Check(fake_cuda_new_stream(0), {Bad()}).skip, Skip::kStarting);
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, std::chrono::milliseconds(20));
  EXPECT_LT(took, std::chrono::seconds(5));
  EXPECT_STREQ(fake_cuda_log_entry(fake_cuda_log_size() - 2), "cuLaunchKernel");
  EXPECT_STREQ(fake_cuda_log_entry(fake_cuda_log_size() - 1), "cuThreadExchangeStreamCaptureMode")
      << "the wait itself calls nothing";
  fake_cuda_run_all();
  ExpectChecks();
}

TEST_F(SettingUp, WaitsWhileAnotherStreamIsCapturedAndLeavesTheGraphWhole) {
  options_.warm_up_wait_ns = 10'000'000'000;
  fake_cuda_set_own_lag(5);
  Make();
  void* captured = fake_cuda_new_stream(0);
  ASSERT_EQ(fake_cuda_begin_capture(captured, kCuCaptureModeGlobal), 0);
  EXPECT_EQ(Check(captured, {Bad()}).skip, Skip::kCapturedBeforeReady);
  void* stream = fake_cuda_new_stream(0);
  CheckOne(stream, Bad());
  CheckOne(captured, Clean());
  EXPECT_GE(fake_cuda_end_capture(captured), 0);
  EXPECT_EQ(RunAndPoll({stream}).size(), 1u);
}

TEST_F(SettingUp, IsDoneOnce) {
  MakeReady();
  const size_t before = fake_cuda_log_size();
  for (int i = 0; i < 100; ++i) {
    CheckOne(nullptr, i % 2 == 0 ? Clean() : Bad());
    fake_cuda_run_all();
    Poll();
  }
  for (const char* once : {"Alloc", "Register", "Module", "Create", "Memset", "Retain"}) {
    EXPECT_THAT(LogSince(before), Each(Not(HasSubstr(once))));
  }
}

TEST_F(SettingUp, WaitsForTheJobToMakeTheContext) {
  Make();
  fake_cuda_set_context_active(0, 0);
  EXPECT_EQ(Check(nullptr, {Clean()}).skip, Skip::kContextInactive);
  fake_cuda_set_context_active(0, 1);
  MakeReady();
  ExpectChecks();
}

TEST_F(SettingUp, TakesMemoryOfTheDriversWhereRegisteringIsRefused) {
  fake_cuda_fail("cuMemHostRegister_v2", 1, 1, kCuNotPermitted);
  MakeReady();
  EXPECT_FALSE(checker_->UsesGivenMemory(0));
  EXPECT_EQ(Failures(Failure::kOther), 1u);
  ExpectChecks();
}

TEST_F(SettingUp, TakesMemoryOfTheDriversWhereNoneIsGivenOrItCannotRegister) {
  driver_.mem_host_register = nullptr;
  MakeReady();
  EXPECT_FALSE(checker_->UsesGivenMemory(0));
  ExpectChecks();
  options_.memory_for = nullptr;
  checker_.reset();
  MakeReady();
  ExpectChecks();
}

TEST_F(SettingUp, FitsIntoTheMemoryThatIsGiven) {
  options_.slots = 1024;
  options_.captured_slots = 1024;
  given_bytes_ = HostBytesFor(options_) / 3;
  MakeReady();
  EXPECT_TRUE(checker_->UsesGivenMemory(0));
  void* stream = fake_cuda_new_stream(0);
  uint32_t launches = 0;
  while (Check(stream, {Bad()}).skip == Skip::kNone) ++launches;
  EXPECT_EQ(launches, 256u / 4 * 3);
  EXPECT_EQ(RunAndPoll({stream}).size(), launches);
}

TEST_F(SettingUp, MakesDoWithLessWhereMemoryIsShort) {
  options_.slots = 1024;
  options_.memory_for = nullptr;
  fake_cuda_fail("cuMemAlloc_v2", 1, 1, kCuOutOfMemory);
  fake_cuda_fail("cuMemHostAlloc", 1, 2, kCuOutOfMemory);
  MakeReady();
  EXPECT_EQ(Failures(Failure::kOutOfMemory), 3u);
  void* stream = fake_cuda_new_stream(0);
  uint32_t launches = 0;
  while (Check(stream, {Clean()}).skip == Skip::kNone) ++launches;
  EXPECT_EQ(launches, 1024u / 8 / 4 * 3);
}

TEST_F(SettingUp, StepsDownWhereThereIsNoMemoryAtAll) {
  options_.slots = 1024;
  Make();
  fake_cuda_fail("cuMemAlloc_v2", 1, 1000, kCuOutOfMemory);
  ExpectDown("cuMemAlloc returned CUDA error 2");
  EXPECT_LT(fake_cuda_calls("cuMemAlloc_v2"), 10u);
}

TEST_F(SettingUp, StepsDownWithTheDriversWordsOnAModuleThatItRefuses) {
  fake_cuda_set_jit_log("ptxas fatal: unsupported .version 9.0\nsecond line");
  fake_cuda_fail("cuModuleLoadDataEx", 1, 1, 222);
  Make();
  ExpectDown("error 222: ptxas fatal: unsupported .version 9.0");
  EXPECT_THAT(checker_->Reason(0), Not(HasSubstr("second line")));
  EXPECT_EQ(Failures(Failure::kImage), 1u);
  EXPECT_EQ(fake_cuda_calls("cuMemAlloc_v2"), 0u);
}

TEST_F(SettingUp, LoadsTheBinaryAndCompilesNothingWhereTheDriverTakesIt) {
  options_.binary = "binary";
  MakeReady();
  EXPECT_EQ(fake_cuda_loaded_image(), options_.binary);
  EXPECT_EQ(fake_cuda_calls("cuModuleLoadDataEx"), 1u);
  ExpectChecks();
}

TEST_F(SettingUp, CompilesTheTextWhereTheDriverRefusesTheBinary) {
  for (const CuResult refusal : {kCuNoBinaryForGpu, kCuInvalidImage, kCuInvalidValue}) {
    // At once, or, where kernels are loaded late, when the first of them is asked for.
    for (const char* function : {"cuModuleLoadDataEx", "cuModuleGetFunction"}) {
      checker_.reset();
      fake_cuda_reset(1);
      RegisterReferenceKernels();
      fake_cuda_set_device(0);
      options_.binary = "binary";
      fake_cuda_set_jit_log("words on the binary");
      fake_cuda_fail(function, 1, 1, refusal);
      MakeReady();
      EXPECT_EQ(fake_cuda_loaded_image(), options_.image);
      EXPECT_EQ(fake_cuda_calls("cuModuleLoadDataEx"), 2u);
      EXPECT_EQ(Failures(Failure::kImage) + Failures(Failure::kOther), 0u);
      ExpectChecks();
    }
  }
}

TEST_F(SettingUp, StepsDownWhereTheDriverTakesNeitherTheBinaryNorTheText) {
  options_.binary = "binary";
  fake_cuda_fail("cuModuleLoadDataEx", 1, 2, kCuNoBinaryForGpu);
  Make();
  ExpectDown("cuModuleLoadDataEx returned CUDA error 209");
  EXPECT_EQ(fake_cuda_calls("cuModuleLoadDataEx"), 2u);
}

TEST_F(SettingUp, ComesBackToTheBinaryThatACaptureWasInTheWayOf) {
  options_.binary = "binary";
  fake_cuda_fail("cuModuleLoadDataEx", 1, 1, kCuStreamCaptureUnsupported);
  Make();
  EXPECT_EQ(Check(nullptr, {Clean()}).skip, Skip::kCaptureUnknown);
  MakeReady();
  EXPECT_EQ(fake_cuda_loaded_image(), options_.binary);
}

TEST_F(SettingUp, StepsDownWhereTheModuleLacksAKernel) {
  fake_cuda_fail("cuModuleGetFunction", 3, 1, kCuNotFound);
  Make();
  ExpectDown("cuModuleGetFunction returned CUDA error 500");
}

TEST_F(SettingUp, OfOneDeviceFailsAlone) {
  fake_cuda_fail("cuModuleLoadDataEx", 1, 1, kCuInvalidPtx);
  Make();
  EXPECT_EQ(Check(fake_cuda_new_stream(1), {Clean()}, {}, 1).skip, Skip::kDriverError);
  EXPECT_NE(checker_->Reason(1), nullptr);
  MakeReady(0);
  ExpectChecks();
}

// Each call of it in turn fails, in every way that matters: the job goes on, and nothing is checked
// halfway.
TEST_F(SettingUp, SurvivesTheFailureOfEachOfItsCalls) {
  options_.binary = "binary";
  for (const CuResult result : {kCuOutOfMemory, kCuInvalidValue, kCuIllegalAddress,
                                kCuStreamCaptureUnsupported, kCuNotPermitted}) {
    for (const char* function :
         {"cuDeviceGet", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain",
          "cuCtxGetCurrent", "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode",
          "cuDeviceGetAttribute", "cuModuleLoadDataEx", "cuModuleGetFunction", "cuMemAlloc_v2",
          "cuMemHostRegister_v2", "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2",
          "cuStreamCreate", "cuMemsetD8Async", "cuLaunchKernel"}) {
      for (const int call : {1, 2, 3}) {
        SCOPED_TRACE(std::string(function) + " " + std::to_string(call) + " " +
                     std::to_string(result));
        checker_.reset();
        fake_cuda_reset(1);
        RegisterReferenceKernels();
        fake_cuda_set_device(0);
        fake_cuda_fail(function, call, 1, result);
        Make();
        void* stream = fake_cuda_new_stream(0);
        for (int i = 0; i < 6; ++i) {
          Check(stream, {Bad()});
          checker_->Flush(0, static_cast<CuStream>(stream));
          fake_cuda_run_all();
          for (const Told& told : Poll()) EXPECT_NE(told.outcome, Outcome::kClean);
        }
        EXPECT_EQ(fake_cuda_current_device(), 0);
        EXPECT_EQ(fake_cuda_context_depth(), 1);
        EXPECT_NE(checker_->Ready(0), checker_->Reason(0) != nullptr);
        EXPECT_STREQ(BrokenContract(), nullptr);
        EXPECT_STREQ(fake_cuda_misdeed(), nullptr);
      }
    }
  }
}

}  // namespace
}  // namespace nanwatch::device
