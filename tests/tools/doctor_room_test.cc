// SPDX-License-Identifier: Apache-2.0
// Whether a job's segments have room, for as many processes as it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/doctor_checks.h"

namespace nanwatch {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(DoctorRanks, ComeFromTheLauncherThenFromGpusThenFromCores) {
  EXPECT_EQ(GuessRanks(EnvironmentBlock({"LOCAL_WORLD_SIZE=8"}), 2, 64).count, 8);
  EXPECT_EQ(GuessRanks(EnvironmentBlock({"SLURM_NTASKS_PER_NODE=4(x2)"}), 2, 64).count, 4);
  EXPECT_EQ(GuessRanks(EnvironmentBlock({"LOCAL_WORLD_SIZE=none"}), 2, 64).count, 2);
  EXPECT_EQ(GuessRanks(EnvironmentBlock(), 0, 64).count, 64);
  EXPECT_EQ(GuessRanks(EnvironmentBlock(), 0, 0).count, 1);
}

TEST(DoctorRoom, IsJudgedForAllOfThem) {
  EXPECT_EQ(JudgeRoom(64 * kMiB, 64 * kMiB, {1, "--ranks"}).health, Health::kOk);
  EXPECT_EQ(JudgeRoom(64 * kMiB, 64 * kMiB, {8, "--ranks"}).health, Health::kOk);
  EXPECT_EQ(JudgeRoom(64 * kMiB, 64 * kMiB, {60, "--ranks"}).health, Health::kWarn);
  EXPECT_EQ(JudgeRoom(10 * kMiB, 64 * kMiB, {60, "--ranks"}).health, Health::kFail);
  EXPECT_EQ(JudgeRoom(kMiB, 64 * kMiB, {1, "--ranks"}).health, Health::kFail);
  EXPECT_EQ(JudgeRoom(0, 0, {64, "--ranks"}).health, Health::kOk) << "unlimited";
}

TEST(DoctorRoom, SaysWhatToDo) {
  const Check check = JudgeRoom(10 * kMiB, 64 * kMiB, {60, "GPUs here"});
  EXPECT_THAT(check.text, testing::HasSubstr("10 MiB free; 60 processes (GPUs here)"));
  EXPECT_THAT(check.text, testing::HasSubstr("--shm-size"));
}

}  // namespace
}  // namespace nanwatch
