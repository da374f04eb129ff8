// SPDX-License-Identifier: Apache-2.0
// Configuration files: what they set holds in the programs, flags and variables win, and a mistake
// is named before anything starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/e2e/wrong_use/tool_process.h"

namespace nanwatch {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ConfigurationFile, SetsWhatNeitherFlagNorVariableSays) {
  Tool tool;
  const std::string file =
      tool.home().Write("mine.toml", "[run]\nlevel = 'canary'\nbudget = 3\n", 0644);
  tool.With("NANWATCH_CONFIG", file);
  EXPECT_THAT(tool.Run({"run", "--", "true"}).err, HasSubstr("level canary"));
  EXPECT_THAT(tool.Run({"run", "--level", "idle", "--", "true"}).err, HasSubstr("level idle"));
  tool.With("NANWATCH_LEVEL", "full");
  EXPECT_THAT(tool.Run({"run", "--", "true"}).err, HasSubstr("level full"));
}

TEST(ConfigurationFile, MovesTheDatabaseForEveryVerb) {
  Tool tool;
  const std::string file = tool.home().Write("mine.toml", "state_dir = 'elsewhere'\n", 0644);
  tool.With("NANWATCH_CONFIG", file);
  tool.With("NANWATCH_STATE_DIR", "");
  EXPECT_THAT(tool.Run({"ps"}).out, HasSubstr(tool.home().Path("elsewhere")));
  EXPECT_THAT(tool.Run({"run", "--", "true"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(tool.home().Path("elsewhere/nanwatch.db")));
}

TEST(ConfigurationFile, IsShownWithWhereEachValueComesFrom) {
  Tool tool;
  const std::string file = tool.home().Write("mine.toml", "[run]\nlevel = 'canary'\n", 0644);
  tool.With("NANWATCH_CONFIG", file);
  tool.With("NANWATCH_BUDGET", "2");
  const ToolResult result = tool.Run({"config"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ContainsRegex("run.level +canary +" + file + ":2\n"));
  EXPECT_THAT(result.out, ContainsRegex("run.budget +2 +NANWATCH_BUDGET\n"));
  EXPECT_THAT(result.out, ContainsRegex("run.stats +100 +default\n"));
}

TEST(ConfigurationFile, WithAMistakeStartsNothing) {
  Tool tool;
  const std::string file = tool.home().Write("mine.toml", "[run]\nlevle = 'full'\n", 0644);
  tool.With("NANWATCH_CONFIG", file);
  const ToolResult run = tool.Run({"run", "--", "touch", tool.home().Path("started")});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr(file + ":2:1: there is no setting 'run.levle'; did you mean "
                                        "'run.level'?"));
  EXPECT_FALSE(std::filesystem::exists(tool.home().Path("started")));
  EXPECT_EQ(tool.Run({"report"}).exit_code, 64);
  EXPECT_EQ(tool.Run({"config"}).exit_code, 2);
  const ToolResult help = tool.Run({"run", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.err, IsEmpty());
}

TEST(ConfigurationFile, IsWhatAWrongValueIsBlamedOn) {
  Tool tool;
  const std::string file = tool.home().Write("mine.toml", "[run]\nlevel = 'fulll'\n", 0644);
  tool.With("NANWATCH_CONFIG", file);
  const ToolResult result = tool.Run({"run", "--", "true"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("run.level (" + file + ":2) is 'fulll': did you mean 'full'?"));
}

// Whoever asks what holds learns that a job would not start with it.
TEST(ConfigurationFile, WithAValueThatIsRefusedIsShownWithTheMistake) {
  Tool tool;
  const std::string file = tool.home().Write("mine.toml", "[run]\nlevel = 'fulll'\n", 0644);
  tool.With("NANWATCH_CONFIG", file);
  const ToolResult level = tool.Run({"config"});
  EXPECT_EQ(level.exit_code, 2);
  EXPECT_THAT(level.out, ContainsRegex("run.level +fulll +" + file + ":2\n"));
  EXPECT_THAT(level.err, HasSubstr("run.level (" + file + ":2) is 'fulll': did you mean 'full'?"));
  tool.home().Write("mine.toml", "[serve]\nlisten = '9464'\n", 0644);
  const ToolResult listen = tool.Run({"config", "--json"});
  EXPECT_EQ(listen.exit_code, 2);
  EXPECT_THAT(listen.err, HasSubstr("serve.listen (" + file + ":2) is '9464': give an address"));
}

}  // namespace
}  // namespace nanwatch
