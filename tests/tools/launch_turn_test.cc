// SPDX-License-Identifier: Apache-2.0
#include "tools/launch_turn.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/tools/temporary_directory.h"
#include "tools/fellow_launchers.h"

namespace nanwatch {
namespace {

EnvironmentBlock With(const std::vector<std::pair<std::string, std::string>>& variables) {
  EnvironmentBlock environment;
  for (const auto& [name, value] : variables) environment.Set(name, value);
  return environment;
}

TEST(LaunchTurn, RanksOfAStepAreOneJobAndTheirNextCallsAnother) {
  TemporaryDirectory segments;
  const auto call = [&](const char* rank, const char* attempt) {
    return JobOfLaunch(With({{"SLURM_JOB_ID", "4711"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", rank},
                             {"SLURM_RESTART_COUNT", attempt}}),
                       segments.path());
  };
  EXPECT_EQ(call("0", "0"), "4711.0");
  EXPECT_EQ(call("1", "0"), "4711.0");
  EXPECT_EQ(call("0", "0"), "4711.0-2");
  EXPECT_EQ(call("1", "0"), "4711.0-2");
  // The job was requeued.
  EXPECT_EQ(call("0", "1"), "4711.0");
}

// A batch script may export one RANK to all of its tasks.
TEST(LaunchTurn, BelievesSlurmWhereTheStepIsOfSlurm) {
  TemporaryDirectory segments;
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(JobOfLaunch(With({{"SLURM_JOB_ID", "4711"},
                                {"SLURM_STEP_ID", "0"},
                                {"SLURM_PROCID", rank},
                                {"RANK", "0"}}),
                          segments.path()),
              "4711.0");
  }
}

TEST(LaunchTurn, TheFirstRankOfAHostSpeaksForAll) {
  EXPECT_TRUE(SpeaksForRanks(With({})));
  EXPECT_TRUE(SpeaksForRanks(With({{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "0"}})));
  EXPECT_FALSE(SpeaksForRanks(With({{"SLURM_PROCID", "5"}, {"SLURM_LOCALID", "1"}})));
  EXPECT_FALSE(SpeaksForRanks(With({{"PMI_RANK", "1"}})));
  EXPECT_TRUE(SpeaksForRanks(With({{"RANK", "x"}})));
}

TEST(FellowLaunchers, CountThoseOfTheSameJobThatLive) {
  TemporaryDirectory segments;
  LauncherMark first = LauncherMark::Join(segments.path(), "4711.0");
  EXPECT_EQ(first.OthersLive(), 0);
  LauncherMark second = LauncherMark::Join(segments.path(), "4711.0");
  const LauncherMark other_step = LauncherMark::Join(segments.path(), "4711.1");
  const LauncherMark other_job = LauncherMark::Join(segments.path(), "4711");
  EXPECT_EQ(first.OthersLive(), 1);
  EXPECT_EQ(second.OthersLive(), 1);
  first.Leave();
  EXPECT_EQ(second.OthersLive(), 0);
  EXPECT_EQ(other_step.OthersLive(), 0);
  EXPECT_EQ(other_job.OthersLive(), 0);
}

TEST(FellowLaunchers, ForgetOneThatWasKilled) {
  TemporaryDirectory segments;
  const std::string left = segments.Write("4711.0.0123456789ab.launcher", "");
  const LauncherMark mark = LauncherMark::Join(segments.path(), "4711.0");
  EXPECT_EQ(mark.OthersLive(), 0);
  EXPECT_NE(access(left.c_str(), F_OK), 0);
}

TEST(FellowLaunchers, AreNoneWhereTheJobIsNotShared) { EXPECT_EQ(LauncherMark().OthersLive(), 0); }

}  // namespace
}  // namespace nanwatch
