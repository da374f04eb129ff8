// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/launch_of_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/ingest/writer_liveness.h"

namespace nanwatch {
namespace {

std::string Entries(std::initializer_list<const char*> entries) {
  std::string text;
  for (const char* entry : entries) text += std::string(entry) + '\0';
  return text;
}

TEST(LaunchOfProcess, IsWhatAllRanksOfALaunchShare) {
  EXPECT_EQ(LaunchOfEnvironment(
                Entries({"RANK=3", "SLURM_JOB_START_TIME=1764203000", "MASTER_ADDR=localhost",
                         "SLURM_CLUSTER_NAME=gpu a", "SECRET=x"})),
            "SLURM_CLUSTER_NAME=gpu_a SLURM_JOB_START_TIME=1764203000");
  EXPECT_EQ(LaunchOfEnvironment(Entries({"TORCHELASTIC_RUN_ID=100", "MASTER_PORT=0"})),
            "TORCHELASTIC_RUN_ID=100 MASTER_PORT=0");
  EXPECT_EQ(LaunchOfEnvironment(Entries({"RANK=3", "MASTER_PORTS=1", "MASTER_PORT="})), "");
  EXPECT_LT(LaunchOfEnvironment("MASTER_PORT=" + std::string(1'000, 'x')).size(), 100u);
}

TEST(LaunchOfProcess, IsThatOfTheProcessItselfAndNotOfALaterOneWithItsPid) {
  nanwatch::Run run;
  run.set_pid(getpid());
  EXPECT_EQ(LaunchOfProcess(run), "") << "when it started is not known";
  run.set_process_start_ticks(ProcessStartTicks(getpid()) + 1);
  EXPECT_EQ(LaunchOfProcess(run), "");
}

}  // namespace
}  // namespace nanwatch
