// SPDX-License-Identifier: Apache-2.0
// What the command does stays its own: status, signal, stdout, environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/e2e/wrong_use/tool_process.h"

namespace nanwatch {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(PassingThrough, TheExitStatusIsTheCommands) {
  Tool tool;
  EXPECT_EQ(tool.RunScript("exit 0").exit_code, 0);
  EXPECT_EQ(tool.RunScript("exit 7").exit_code, 7);
}

TEST(PassingThrough, TheSignalIsTheCommands) {
  Tool tool;
  EXPECT_EQ(tool.RunScript("kill -SEGV $$").signal, SIGSEGV);
  EXPECT_EQ(tool.RunScript("kill -KILL $$").signal, SIGKILL);
}

TEST(PassingThrough, StdoutIsUntouchedByteForByte) {
  Tool tool;
  const ToolResult result =
      tool.RunScript("printf 'a\\000b\\r\\377\\033[1m no newline at the end'");
  EXPECT_EQ(result.out, std::string("a\0b\r\377\033[1m no newline at the end", 31));
}

TEST(PassingThrough, StderrHasOneLineBeforeTheCommandsOwn) {
  Tool tool;
  const ToolResult result = tool.RunScript("echo mine >&2");
  EXPECT_THAT(result.err, HasSubstr("mine\n"));
  EXPECT_THAT(result.err, MatchesRegex("(nanwatch: [^\n]*\n)+mine\n(nanwatch: [^\n]*\n)*"));
}

// By its mark the daemon knows of the job before the command has imported torch.
TEST(PassingThrough, ARunLeavesItsMarkOnlyWhileItLasts) {
  Tool tool;
  EXPECT_THAT(tool.RunScript("ls $NANWATCH_DIR").out, HasSubstr(".launcher\n"));
  for (const auto& file : std::filesystem::directory_iterator(tool.SegmentDir()))
    EXPECT_NE(file.path().extension(), ".launcher");
}

TEST(PassingThrough, AVerdictOnStdoutFollowsTheCommandsOutput) {
  Tool tool;
  const ToolResult result = tool.Run({"run", "--verdict", "-", "--", "/bin/echo", "mine"});
  ASSERT_TRUE(result.out.starts_with("mine\n"));
  EXPECT_EQ(nlohmann::json::parse(result.out.substr(5))["schema"], "nanwatch.verdict/1");
}

TEST(PassingThrough, ACommandWithoutTorchGetsAnUnknownVerdictWithoutRuns) {
  Tool tool;
  const ToolResult result =
      tool.Run({"run", "--verdict", tool.home().Path("v.json"), "--", "/bin/sh", "-c", "exit 7"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, AnyOf(HasSubstr("nothing was observed"), HasSubstr("unobserved")));
  const auto verdict = nlohmann::json::parse(tool.home().Read("v.json"));
  EXPECT_EQ(verdict["verdict"], "unknown");
  EXPECT_EQ(verdict["runs"].size(), 0u);
  EXPECT_EQ(verdict["run"]["exit_code"], 7);
  EXPECT_TRUE(verdict["run"]["signal"].is_null());
}

TEST(PassingThrough, AVerdictOfAKilledCommandNamesTheSignal) {
  Tool tool;
  (void)tool.Run(
      {"run", "--verdict", tool.home().Path("v.json"), "--", "/bin/sh", "-c", "kill -KILL $$"});
  const auto verdict = nlohmann::json::parse(tool.home().Read("v.json"));
  EXPECT_EQ(verdict["run"]["signal"], SIGKILL);
  EXPECT_TRUE(verdict["run"]["exit_code"].is_null());
}

TEST(PassingThrough, SwitchedOffMeansWithoutUs) {
  Tool tool;
  const ToolResult result = tool.With("NANWATCH", "0").RunScript("echo \"<$LD_PRELOAD>\"; exit 3");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "<>\n");
  EXPECT_THAT(result.err, HasSubstr("NANWATCH=0"));
}

TEST(PassingThrough, NoColourReachesAPipe) {
  Tool tool;
  EXPECT_THAT(tool.RunScript("true").err, Not(HasSubstr("\033")));
  EXPECT_THAT(tool.Run({"doctor"}).out, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace nanwatch
