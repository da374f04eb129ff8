// SPDX-License-Identifier: Apache-2.0
// The fake driver in the setting of a job whose ops are done when they return: a check looks at the
// launch, and is seen late.
#include "tests/fakes/cuda/check_kernels.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "proto/wire/record.h"
#include "shim/device/batch_launch.h"
#include "shim/device/check_launch.h"
#include "shim/device/driver.h"
#include "shim/device/list_launch.h"
#include "tests/fakes/cuda/fake_cuda.h"

namespace nanwatch::device {
namespace {

constexpr size_t kLate = 3;

class CheckKernels : public testing::Test {
 protected:
  CheckKernels() {
    fake_cuda_reset(1);
    fake_cuda_set_default_device(0);
    fake_cuda_set_late(kLate);
    RegisterCheckKernels();
    CuModule module = nullptr;
    EXPECT_EQ(driver_.module_load_data_ex(&module, "text", 0, nullptr, nullptr), kCuSuccess);
    EXPECT_EQ(driver_.module_get_function(&function_, module, "nanwatch_check_few"), kCuSuccess);
  }

  void Launch(uint64_t ticket) {
    FewLaunch launch = {};
    launch.head.ticket = ticket;
    launch.head.result = reinterpret_cast<uint64_t>(&result_);
    launch.head.scratch = reinterpret_cast<uint64_t>(&scratch_);
    launch.head.progress = reinterpret_cast<uint64_t>(&progress_);
    launch.head.output_count = 1;
    launch.tensors[0].data = reinterpret_cast<uint64_t>(values_.data());
    launch.tensors[0].numel = static_cast<int64_t>(values_.size());
    launch.tensors[0].type = static_cast<uint8_t>(wire::ElementType::kFloat32);
    void* parameters[] = {&launch};
    EXPECT_EQ(driver_.launch_kernel(function_, 1, 1, 1, kThreadsPerBlock, 1, 1, 0, nullptr,
                                    parameters, nullptr),
              kCuSuccess);
  }

  Driver driver_ = *DriverOfProcess();
  CuFunction function_ = nullptr;
  std::vector<float> values_ = std::vector<float>(100, 1.0f);
  CheckResult result_ = {};
  LaunchScratch scratch_ = {};
  uint64_t progress_ = 0;
};

TEST_F(CheckKernels, SeeWhatWasThereAtTheLaunch) {
  values_[7] = std::numeric_limits<float>::quiet_NaN();
  Launch(1);
  values_[7] = 1.0f;
  fake_cuda_run_all();
  EXPECT_EQ(result_.ticket, 1u);
  EXPECT_EQ(result_.hits, 1u);
  EXPECT_EQ(result_.outputs[0].nan, 1u);
  EXPECT_EQ(result_.outputs[0].first_bad, 7u);
  EXPECT_EQ(progress_, 1u);
}

TEST_F(CheckKernels, AnswerNothingForCleanValues) {
  Launch(1);
  values_[7] = std::numeric_limits<float>::infinity();
  fake_cuda_run_all();
  EXPECT_EQ(result_.ticket, 0u);
  EXPECT_EQ(progress_, 1u);
}

TEST_F(CheckKernels, AreSeenOnlyAfterSoManyFurtherLaunches) {
  values_[0] = -std::numeric_limits<float>::infinity();
  Launch(1);
  values_[0] = 0;
  for (uint64_t ticket = 2; ticket <= kLate; ++ticket) Launch(ticket);
  EXPECT_EQ(result_.ticket, 0u);
  EXPECT_EQ(progress_, 0u);
  Launch(kLate + 1);
  EXPECT_EQ(result_.ticket, 1u);
  EXPECT_EQ(result_.outputs[0].neg_inf, 1u);
  EXPECT_EQ(progress_, 1u);
}

TEST_F(CheckKernels, TellTheSumsOfAListAsItWasAtTheLaunch) {
  CuModule module = nullptr;
  EXPECT_EQ(driver_.module_load_data_ex(&module, "text", 0, nullptr, nullptr), kCuSuccess);
  EXPECT_EQ(driver_.module_get_function(&function_, module, "nanwatch_sum_list"), kCuSuccess);
  ListLaunch launch = {};
  launch.head.result = reinterpret_cast<uint64_t>(&result_);
  launch.head.output_count = 1;
  launch.entries[0] = MakeEntry(reinterpret_cast<uint64_t>(values_.data()), values_.size(),
                                static_cast<uint8_t>(wire::ElementType::kFloat32));
  const auto sum = [&](uint64_t ticket) {
    launch.head.ticket = ticket;
    void* parameters[] = {&launch};
    EXPECT_EQ(driver_.launch_kernel(function_, 1, 1, 1, kThreadsPerBlock, 1, 1, 0, nullptr,
                                    parameters, nullptr),
              kCuSuccess);
  };
  values_[0] = 2;
  sum(1);
  values_[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ListOf(result_).sums_ticket, 0u);
  fake_cuda_run_all();
  EXPECT_EQ(ListOf(result_).sums_ticket, 1u);
  EXPECT_EQ(ListOf(result_).sums.squares, 103);
  EXPECT_EQ(ListOf(result_).sums.first, 2);
  EXPECT_EQ(result_.ticket, 0u);
  sum(2);
  fake_cuda_run_all();
  EXPECT_EQ(ListOf(result_).sums_ticket, 2u);
  EXPECT_EQ(result_.ticket, 2u);
  EXPECT_TRUE(ListOf(result_).IsBad(0));
}

TEST_F(CheckKernels, SeeTheTensorsOfABatchAsTheyWereAtTheLaunch) {
  CuModule module = nullptr;
  EXPECT_EQ(driver_.module_load_data_ex(&module, "text", 0, nullptr, nullptr), kCuSuccess);
  EXPECT_EQ(driver_.module_get_function(&function_, module, "nanwatch_check_batch"), kCuSuccess);
  BatchLaunch launch = {};
  launch.head.ticket = 5;
  launch.head.result = reinterpret_cast<uint64_t>(&result_);
  launch.head.output_count = launch.head.input_count = 1;
  launch.entries[0] = launch.entries[1] =
      MakeEntry(reinterpret_cast<uint64_t>(values_.data()), values_.size(),
                static_cast<uint8_t>(wire::ElementType::kFloat32));
  EXPECT_EQ(PlanBatch(launch), 1u);
  values_[9] = std::numeric_limits<float>::infinity();
  void* parameters[] = {&launch};
  EXPECT_EQ(driver_.launch_kernel(function_, 1, 1, 1, kThreadsPerBlock, 1, 1, 0, nullptr,
                                  parameters, nullptr),
            kCuSuccess);
  values_[9] = 0;
  EXPECT_EQ(result_.ticket, 0u);
  fake_cuda_run_all();
  EXPECT_EQ(result_.ticket, 5u);
  EXPECT_EQ(BatchOf(result_).KindsOf(0), wire::kHasPosInf);
  EXPECT_EQ(BatchOf(result_).KindsOf(1), wire::kHasPosInf) << "the other is read on a hit";
  EXPECT_EQ(BatchOf(result_).CountsOf(1)->first_bad, 9u);
}

// As the host warms the kernel up.
TEST_F(CheckKernels, ThatAreToldNoListWriteNoSums) {
  CuModule module = nullptr;
  EXPECT_EQ(driver_.module_load_data_ex(&module, "text", 0, nullptr, nullptr), kCuSuccess);
  EXPECT_EQ(driver_.module_get_function(&function_, module, "nanwatch_sum_list"), kCuSuccess);
  ListLaunch launch = {};
  launch.head.ticket = 1;
  launch.head.progress = reinterpret_cast<uint64_t>(&progress_);
  void* parameters[] = {&launch};
  EXPECT_EQ(driver_.launch_kernel(function_, 1, 1, 1, kThreadsPerBlock, 1, 1, 0, nullptr,
                                  parameters, nullptr),
            kCuSuccess);
  fake_cuda_run_all();
  EXPECT_EQ(progress_, 1u);
}

TEST_F(CheckKernels, FindADeviceCurrentOnAnyThread) { EXPECT_EQ(fake_cuda_current_device(), 0); }

}  // namespace
}  // namespace nanwatch::device
