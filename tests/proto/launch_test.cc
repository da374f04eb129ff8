// SPDX-License-Identifier: Apache-2.0
// Which processes are one launch, with real processes that have the variables of launchers.
#include "proto/wire/launch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace nanwatch::wire {
namespace {

using Variables = std::map<std::string, std::string>;

constexpr char kAsk[] = "--ask-launch";

std::string Ask() {
  const auto variable = [](const char* name) { return static_cast<const char*>(getenv(name)); };
  LaunchId launch = LaunchOfRank(variable);
  if (!launch.known()) launch = LaunchInBatch(variable);
  return launch.text;
}

// Starts this program anew with these variables and no others, `wrappers` processes deep, and
// returns what the innermost says.
std::string AskIn(const Variables& variables, int wrappers = 0) {
  int answers[2];
  if (pipe(answers) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    dup2(answers[1], STDOUT_FILENO);
    std::vector<std::string> texts;
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    std::vector<char*> environment;
    for (std::string& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    const std::string depth = std::to_string(wrappers);
    execle("/proc/self/exe", "launch_test", kAsk, depth.c_str(), nullptr, environment.data());
    _exit(200);
  }
  close(answers[1]);
  std::string text(256, '\0');
  const ssize_t got = read(answers[0], text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  close(answers[0]);
  waitpid(child, nullptr, 0);
  return text;
}

// The same in a launcher of its own: a process that stays while its ranks run.
std::vector<std::string> AskInLauncher(const std::vector<Variables>& ranks, int wrappers = 0) {
  int answers[2];
  if (pipe(answers) != 0) std::abort();
  const pid_t launcher = fork();
  if (launcher == 0) {
    std::string all;
    for (const Variables& rank : ranks) all += AskIn(rank, wrappers) + "\n";
    _exit(write(answers[1], all.data(), all.size()) == static_cast<ssize_t>(all.size()) ? 0 : 1);
  }
  close(answers[1]);
  std::string text(4096, '\0');
  const ssize_t got = read(answers[0], text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  close(answers[0]);
  waitpid(launcher, nullptr, 0);
  std::vector<std::string> jobs;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    jobs.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return jobs;
}

Variables SlurmTask(const char* step, const char* rank) {
  return {{"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", step}, {"SLURM_PROCID", rank}};
}

TEST(Launch, IsTheStepOfSlurm) {
  EXPECT_EQ(AskIn(SlurmTask("0", "0")), "4711.0");
  EXPECT_EQ(AskIn(SlurmTask("0", "3")), "4711.0");
  EXPECT_EQ(AskIn(SlurmTask("1", "0")), "4711.1");
}

TEST(Launch, IsNotTheBatchScriptOfSlurm) {
  const std::string alone = AskIn({{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}});
  EXPECT_TRUE(alone.starts_with("4711-")) << alone;
  EXPECT_NE(AskIn({{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}}), alone);
  EXPECT_TRUE(AskIn(SlurmTask("4294967291", "0")).starts_with("4711-"));
}

TEST(Launch, OfTorchrunIsTheAgentsAndNotThatOfAnIdThatRepeats) {
  const Variables rank = {{"TORCHELASTIC_RUN_ID", "100"}, {"RANK", "0"}};
  const std::vector<std::string> first = AskInLauncher({rank, rank});
  const std::vector<std::string> second = AskInLauncher({rank});
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_TRUE(first[0].starts_with("100-")) << first[0];
  EXPECT_EQ(first[0], first[1]);
  EXPECT_NE(first[0], second[0]);
}

TEST(Launch, IsFoundThroughTheScriptsAroundARank) {
  const Variables rank = {{"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "1"}};
  const std::vector<std::string> jobs = AskInLauncher({rank, rank}, 2);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_TRUE(jobs[0].starts_with("torchrun-")) << jobs[0];
  EXPECT_EQ(jobs[0], jobs[1]);
}

TEST(Launch, OfMpiIsItsLauncherWhereRanksHaveOnlyNumbers) {
  const std::vector<std::string> jobs =
      AskInLauncher({{{"OMPI_COMM_WORLD_RANK", "0"}}, {{"OMPI_COMM_WORLD_RANK", "1"}}}, 1);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_TRUE(jobs[0].starts_with("mpirun-")) << jobs[0];
  EXPECT_EQ(jobs[0], jobs[1]);
}

TEST(Launch, InABuildServerIsTheOutermostProcessWithOurLibrary) {
  // The name of a library that the loader cannot find is passed over with a warning on stderr.
  const Variables process = {{"JOB_NAME", "team/nightly"}, {"LD_PRELOAD", "libnanwatch.so"}};
  const std::string child = AskIn(process, 2);
  EXPECT_TRUE(child.starts_with("team_nightly-")) << child;
  EXPECT_NE(AskIn(process, 2), child);
}

TEST(Launch, OfAProcessWithoutALauncherIsNotKnown) { EXPECT_EQ(AskIn({{"RANK", "0"}}), ""); }

}  // namespace

// Asks, or lets a child that has the same variables ask.
int AnswerOrWrap(int depth) {
  if (depth == 0) {
    const std::string answer = Ask();
    return write(STDOUT_FILENO, answer.data(), answer.size()) < 0 ? 1 : 0;
  }
  const pid_t child = fork();
  if (child == 0) {
    const std::string less = std::to_string(depth - 1);
    execl("/proc/self/exe", "launch_test", kAsk, less.c_str(), nullptr);
    _exit(200);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

// Before main: the program of the tests is its own helper.
__attribute__((constructor)) static void BecomeHelper(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == kAsk) _exit(AnswerOrWrap(std::atoi(argv[2])));
}

}  // namespace nanwatch::wire
