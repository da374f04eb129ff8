// SPDX-License-Identifier: Apache-2.0
#include "tools/job_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunOptions Command() {
  RunOptions options;
  options.command = {"python", "train.py"};
  return options;
}

std::string WrongUseOf(void (*change)(RunOptions&)) {
  RunOptions options = Command();
  change(options);
  return FindWrongUse(options, EnvironmentBlock());
}

TEST(WrongUse, NothingIsWrongWithAPlainCommand) {
  EXPECT_EQ(FindWrongUse(Command(), EnvironmentBlock()), "");
}

TEST(WrongUse, NoCommandSaysWhereItGoes) {
  EXPECT_THAT(WrongUseOf([](RunOptions& o) { o.command.clear(); }),
              HasSubstr("nanwatch run -- python"));
}

TEST(WrongUse, AnUnknownLevelNamesTheKnownOnesAndTheNearest) {
  const std::string wrong = WrongUseOf([](RunOptions& o) { o.level = "ful"; });
  EXPECT_THAT(wrong, HasSubstr("did you mean 'full'?"));
  EXPECT_THAT(wrong, HasSubstr("idle, canary, sampled, full, auto"));
}

TEST(WrongUse, AWordThatIsNearToNoneIsOneSentence) {
  EXPECT_EQ(WrongUseOf([](RunOptions& o) { o.level = "foo"; }),
            "--level is 'foo': use one of idle, canary, sampled, full, auto");
}

TEST(WrongUse, EveryLevelOfTheContractIsKnown) {
  for (const char* level : {"idle", "canary", "sampled", "full", "auto"}) {
    RunOptions options = Command();
    options.level = level;
    EXPECT_EQ(FindWrongUse(options, EnvironmentBlock()), "");
  }
}

TEST(WrongUse, TheFormerNameOfALevelIsStillTaken) {
  RunOptions options = Command();
  options.level = "layer";
  EXPECT_EQ(FindWrongUse(options, EnvironmentBlock()), "");
  EXPECT_EQ(FindWrongUse(Command(), EnvironmentBlock({"NANWATCH_LEVEL=layer"})), "");
}

TEST(WrongUse, ABudgetIsAPercentageWithOrWithoutItsSign) {
  EXPECT_EQ(WrongUseOf([](RunOptions& o) { o.budget = "2.5"; }), "");
  EXPECT_EQ(WrongUseOf([](RunOptions& o) { o.budget = "2%"; }), "");
  EXPECT_NE(WrongUseOf([](RunOptions& o) { o.budget = "0"; }), "");
  EXPECT_NE(WrongUseOf([](RunOptions& o) { o.budget = "101"; }), "");
  EXPECT_NE(WrongUseOf([](RunOptions& o) { o.budget = "two"; }), "");
  EXPECT_NE(WrongUseOf([](RunOptions& o) { o.budget = "nan"; }), "");
}

TEST(WrongUse, StatsIsANumberOfSteps) {
  const auto wrong = [](const char* stats) {
    RunOptions options = Command();
    options.stats = stats;
    return FindWrongUse(options, EnvironmentBlock());
  };
  for (const char* fine : {"", "0", "1", "100000"}) EXPECT_EQ(wrong(fine), "") << fine;
  for (const char* other : {"-1", "1.5", "often", "12345678901"})
    EXPECT_THAT(wrong(other), HasSubstr("--stats")) << other;
}

TEST(WrongUse, AnUnknownReactionIsRefused) {
  EXPECT_THAT(WrongUseOf([](RunOptions& o) { o.on_anomaly = "abort"; }),
              HasSubstr("continue, stop"));
}

TEST(WrongUse, ACapsuleHasAKindAndASize) {
  EXPECT_EQ(WrongUseOf([](RunOptions& o) { o.capsule = "op"; }), "");
  EXPECT_EQ(WrongUseOf([](RunOptions& o) { o.capsule_limit = "64M"; }), "");
  EXPECT_THAT(WrongUseOf([](RunOptions& o) { o.capsule = "ops"; }), HasSubstr("off, op"));
  for (const char* size : {"M", "-1", "64MB", "1.5M", "99999999999G"}) {
    RunOptions options = Command();
    options.capsule_limit = size;
    EXPECT_THAT(FindWrongUse(options, EnvironmentBlock()), HasSubstr("64M")) << size;
  }
}

TEST(WrongUse, VariablesAreCheckedLikeFlags) {
  const auto wrong = [](const char* assignment) {
    return FindWrongUse(Command(), EnvironmentBlock({assignment}));
  };
  EXPECT_THAT(wrong("NANWATCH_LEVEL=everything"), HasSubstr("NANWATCH_LEVEL"));
  EXPECT_THAT(wrong("NANWATCH_BUDGET=-1"), HasSubstr("NANWATCH_BUDGET"));
  EXPECT_THAT(wrong("NANWATCH_STATS=all"), HasSubstr("NANWATCH_STATS"));
  EXPECT_THAT(wrong("NANWATCH_MEASURE=60"), HasSubstr("NANWATCH_MEASURE is '60'"));
  EXPECT_THAT(wrong("NANWATCH_MEASURE=off"), HasSubstr("from 0 (none) to 50"));
  EXPECT_EQ(wrong("NANWATCH_MEASURE=0"), "");
  EXPECT_THAT(wrong("NANWATCH_KERNELS=yes"), HasSubstr("NANWATCH_KERNELS"));
  EXPECT_THAT(wrong("NANWATCH_VET_CHECKPOINTS=yes"), HasSubstr("NANWATCH_VET_CHECKPOINTS"));
  EXPECT_THAT(wrong("NANWATCH_JOB=../../etc/passwd"), HasSubstr("NANWATCH_JOB"));
  EXPECT_EQ(wrong("NANWATCH_JOB=slurm-4711.0_a"), "");
}

// An installation whose library exists.
struct Installed {
  Installed() { where.library = directory.Write("libnanwatch.so", ""); }
  TemporaryDirectory directory;
  Installation where;
};

TEST(Launch, SetsPreloadAndJob) {
  const Installed installed;
  const JobLaunch launch =
      PlanLaunch(Command(), EnvironmentBlock({"HOME=/h"}), installed.where, "0123456789ab");
  EXPECT_TRUE(launch.observed);
  EXPECT_THAT(launch.notes, IsEmpty());
  EXPECT_THAT(
      launch.environment.Assignments(),
      ElementsAre("HOME=/h", "NANWATCH_JOB=0123456789ab", "LD_PRELOAD=" + installed.where.library));
}

TEST(Launch, KeepsTheJobThatTheEnvironmentNames) {
  const Installed installed;
  const JobLaunch launch = PlanLaunch(Command(), EnvironmentBlock({"NANWATCH_JOB=mine"}),
                                      installed.where, "0123456789ab");
  EXPECT_EQ(launch.job, "mine");
  EXPECT_EQ(launch.environment.Text("NANWATCH_JOB"), "mine");
}

TEST(Launch, FlagsWinOverVariables) {
  const Installed installed;
  RunOptions options = Command();
  options.level = "full";
  options.budget = "2%";
  options.on_anomaly = "stop";
  options.stats = "7";
  options.measure = "0";
  options.kernels = true;
  options.vet_checkpoints = true;
  options.capsule = "op";
  options.capsule_limit = "2K";
  const JobLaunch launch = PlanLaunch(options, EnvironmentBlock({"NANWATCH_LEVEL=idle"}),
                                      installed.where, "0123456789ab");
  EXPECT_EQ(launch.environment.Text("NANWATCH_LEVEL"), "full");
  EXPECT_EQ(launch.environment.Text("NANWATCH_BUDGET"), "2");
  EXPECT_EQ(launch.environment.Text("NANWATCH_ON_ANOMALY"), "stop");
  EXPECT_EQ(launch.environment.Text("NANWATCH_STATS"), "7");
  EXPECT_EQ(launch.environment.Text("NANWATCH_MEASURE"), "0");
  EXPECT_EQ(launch.environment.Text("NANWATCH_KERNELS"), "1");
  EXPECT_EQ(launch.environment.Text("NANWATCH_VET_CHECKPOINTS"), "1");
  EXPECT_EQ(launch.environment.Text("NANWATCH_CAPSULE"), "op");
  EXPECT_EQ(launch.environment.Text("NANWATCH_CAPSULE_LIMIT"), "2048");
}

TEST(Launch, TheFormerNameOfALevelBecomesTheNewOneAndIsMentioned) {
  const Installed installed;
  RunOptions options = Command();
  options.level = "layer";
  const JobLaunch by_flag =
      PlanLaunch(options, EnvironmentBlock(), installed.where, "0123456789ab");
  const JobLaunch by_variable = PlanLaunch(Command(), EnvironmentBlock({"NANWATCH_LEVEL=layer"}),
                                           installed.where, "0123456789ab");
  for (const JobLaunch& launch : {by_flag, by_variable}) {
    EXPECT_EQ(launch.environment.Text("NANWATCH_LEVEL"), "sampled");
    EXPECT_THAT(launch.notes, ElementsAre(HasSubstr("'layer' is called 'sampled' now")));
  }
  options.level = "full";
  const JobLaunch overruled = PlanLaunch(options, EnvironmentBlock({"NANWATCH_LEVEL=layer"}),
                                         installed.where, "0123456789ab");
  EXPECT_EQ(overruled.environment.Text("NANWATCH_LEVEL"), "full");
  EXPECT_THAT(overruled.notes, IsEmpty());
}

TEST(Launch, AMissingLibraryCostsObservationOnly) {
  const JobLaunch launch =
      PlanLaunch(Command(), EnvironmentBlock(), Installation(), "0123456789ab");
  EXPECT_FALSE(launch.observed);
  EXPECT_EQ(launch.environment.Get("LD_PRELOAD"), std::nullopt);
  EXPECT_THAT(launch.notes, ElementsAre(HasSubstr("unobserved")));
}

TEST(Launch, TheSwitchIsObeyedAndSaid) {
  const Installed installed;
  const JobLaunch launch =
      PlanLaunch(Command(), EnvironmentBlock({"NANWATCH=0"}), installed.where, "0123456789ab");
  EXPECT_FALSE(launch.observed);
  EXPECT_EQ(launch.environment.Get("LD_PRELOAD"), std::nullopt);
  EXPECT_THAT(launch.notes, ElementsAre(HasSubstr("NANWATCH=0")));
}

TEST(JobId, IsTwelveHexadecimalDigitsAndNotTheSameTwice) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const std::string id = RandomJobId();
    EXPECT_EQ(id.size(), 12u);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 100u);
}

TEST(Environment, SettingReplacesInPlaceAndANameIsNoPrefix) {
  EnvironmentBlock block({"NANWATCH_JOB=a", "NANWATCH=1"});
  EXPECT_EQ(block.Text("NANWATCH"), "1");
  block.Set("NANWATCH", "0");
  block.Unset("NANWATCH_JOB");
  EXPECT_THAT(block.Assignments(), ElementsAre("NANWATCH=0"));
}

}  // namespace
}  // namespace nanwatch
