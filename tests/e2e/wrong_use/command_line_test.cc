// SPDX-License-Identifier: Apache-2.0
// Wrong command lines: a sentence that says what to do, an exit code as documented, and nothing
// started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/e2e/wrong_use/tool_process.h"

namespace nanwatch {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(WrongCommandLine, NothingAtAllPointsToTheHelp) {
  Tool tool;
  const ToolResult result = tool.Run({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("nanwatch --help"));
}

TEST(WrongCommandLine, RunWithoutACommandShowsHowItIsWritten) {
  Tool tool;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run"}, {"run", "--"}}) {
    const ToolResult result = tool.Run(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("nanwatch run -- python train.py"));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST(WrongCommandLine, ACommandWithoutTheDashesIsNotGuessedAt) {
  Tool tool;
  const ToolResult result = tool.Run({"run", "touch", tool.home().Path("started")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("after '--'"));
  EXPECT_FALSE(std::filesystem::exists(tool.home().Path("started")));
}

TEST(WrongCommandLine, ACommandThatDoesNotExistGives127) {
  Tool tool;
  const ToolResult result = tool.Run({"run", "--", "no-such-command-anywhere"});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(result.err, HasSubstr("'no-such-command-anywhere' not found"));
  EXPECT_FALSE(std::filesystem::exists(tool.home().Path("state")));
}

TEST(WrongCommandLine, AFileThatIsNotExecutableGives126) {
  Tool tool;
  const std::string script = tool.home().Write("train.py", "pass\n", 0600);
  const ToolResult result = tool.Run({"run", "--", script});
  EXPECT_EQ(result.exit_code, 126);
  EXPECT_THAT(result.err, HasSubstr("python " + script));
}

TEST(WrongCommandLine, AScriptWhoseInterpreterIsMissingGives126) {
  Tool tool;
  const std::string script = tool.home().Write("train", "#!/nonexistent/python\n", 0700);
  const ToolResult result = tool.Run({"run", "--", script});
  EXPECT_EQ(result.exit_code, 126);
  EXPECT_THAT(result.err, HasSubstr("interpreter"));
}

TEST(WrongCommandLine, AnUnknownLevelIsFoundBeforeTheJobStarts) {
  Tool tool;
  const ToolResult result =
      tool.Run({"run", "--level", "ful", "--", "touch", tool.home().Path("started")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean 'full'?"));
  EXPECT_FALSE(std::filesystem::exists(tool.home().Path("started")));
}

TEST(WrongCommandLine, AVerdictPathThatCannotBeWrittenIsFoundBeforeTheJobStarts) {
  Tool tool;
  const ToolResult result = tool.Run({"run", "--verdict", tool.home().Path("absent/v.json"), "--",
                                      "touch", tool.home().Path("started")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("nothing was started"));
  EXPECT_FALSE(std::filesystem::exists(tool.home().Path("started")));
}

TEST(WrongCommandLine, AMisspelledFlagOfRunIsNotTakenForTheCommand) {
  Tool tool;
  const ToolResult result =
      tool.Run({"run", "--levle", "full", "--", "touch", tool.home().Path("started")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--levle"));
  EXPECT_FALSE(std::filesystem::exists(tool.home().Path("started")));
}

TEST(WrongCommandLine, FlagsOfTheCommandAreItsOwn) {
  Tool tool;
  const ToolResult result = tool.Run({"run", "--", "echo", "--level", "ful", "--", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "--level ful -- --help\n");
}

TEST(WrongCommandLine, AMisspelledVerbIsNamedWithTheNearest) {
  Tool tool;
  const ToolResult result = tool.Run({"rport"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean 'report'?"));
}

TEST(WrongCommandLine, AnOptionThatDoesNotExistIsNamedAndNotOffered) {
  Tool tool;
  const ToolResult result = tool.Run({"report", "--pdf", "x.html"});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_THAT(result.err, HasSubstr("--pdf"));
  EXPECT_THAT(tool.Run({"report", "--help"}).out, Not(HasSubstr("--pdf")));
}

TEST(WrongCommandLine, AttachWithoutATargetOrWithAnUnknownLevelAsksNobody) {
  Tool tool;
  for (const char* verb : {"attach", "detach"}) {
    const ToolResult none = tool.Run({verb});
    EXPECT_EQ(none.exit_code, 2) << verb;
    EXPECT_THAT(none.err, HasSubstr("say which process: a PID, a RUN")) << verb;
  }
  EXPECT_EQ(tool.Run({"attach", "1", "--level", "most"}).exit_code, 2);
  EXPECT_EQ(tool.Run({"attach", "1", "--for", "soon"}).exit_code, 2);
  EXPECT_EQ(tool.Run({"attach", "1", "--all"}).exit_code, 2);
  EXPECT_EQ(tool.Run({"attach", "--all", "--inject"}).exit_code, 2);
}

TEST(WrongCommandLine, WhatIsWrongWithAValueIsOneShortSentence) {
  Tool tool;
  const auto line = [&](const std::vector<std::string>& words) {
    const std::string said = tool.Run(words).err;
    return said.substr(0, said.find('\n'));
  };
  EXPECT_EQ(
      line({"run", "--level", "ful", "--", "true"}),
      "nanwatch: --level is 'ful': did you mean 'full'? Use one of idle, canary, sampled, full, "
      "auto");
  EXPECT_EQ(line({"run", "--level", "foo", "--", "true"}),
            "nanwatch: --level is 'foo': use one of idle, canary, sampled, full, auto");
  EXPECT_EQ(line({"report", "--explain", "0"}),
            "nanwatch: --explain is '0': give a number from 1 to 1000000");
  EXPECT_EQ(line({"tail", "-n", "-3"}),
            "nanwatch: --lines is '-3': give a number from 0 to 1000000000");
  EXPECT_EQ(line({"attach", "1", "--for", "0s"}),
            "nanwatch: --for: '0s' is not a duration: give one such as 90s, 10m, 2h or 1d");
  EXPECT_EQ(line({"attach", "1", "--for", "1w"}),
            "nanwatch: --for: '1w' is not a duration: give one such as 90s, 10m, 2h or 1d");
  EXPECT_EQ(line({"attach", "1", "--wait", "-1"}),
            "nanwatch: --wait: '-1' is not a time: give seconds, such as 10");
  EXPECT_EQ(line({"attach", "1", "--level", "most"}),
            "nanwatch: --level: 'most' is not a level: use idle, canary, sampled or full");
  EXPECT_EQ(line({"attach"}),
            "nanwatch: say which process: a PID, a RUN, --job ID, --rank N or --all");
  EXPECT_EQ(line({"report", "--check", "--stats"}),
            "nanwatch: --check and --stats cannot be combined");
  EXPECT_EQ(line({"ps", "extra"}), "nanwatch: unknown option or argument: extra");
}

TEST(WrongCommandLine, AskingForHelpByAVerbGivesIt) {
  Tool tool;
  EXPECT_EQ(tool.Run({"help"}).out, tool.Run({"--help"}).out);
  EXPECT_EQ(tool.Run({"help", "report"}).out, tool.Run({"report", "--help"}).out);
  EXPECT_EQ(tool.Run({"help"}).exit_code, 0);
  EXPECT_THAT(tool.Run({"help", "rport"}).err, HasSubstr("did you mean 'report'?"));
}

TEST(WrongCommandLine, AMistypedCheckInCiDoesNotReadAsAnAnomaly) {
  Tool tool;
  EXPECT_EQ(tool.Run({"report", "--chekc"}).exit_code, 64);
}

TEST(WrongCommandLine, EveryVerbHasHelpWithExamplesAndExitStatus) {
  Tool tool;
  for (const char* verb : {"run", "ps", "top", "tail", "report", "attach", "detach", "doctor"}) {
    const ToolResult result = tool.Run({verb, "--help"});
    EXPECT_EQ(result.exit_code, 0) << verb;
    EXPECT_THAT(result.out, HasSubstr("Examples:")) << verb;
    EXPECT_THAT(result.out, HasSubstr("Exit status")) << verb;
    EXPECT_THAT(result.out, HasSubstr("--json")) << verb;
    EXPECT_THAT(result.out, Not(HasSubstr("\033"))) << verb;
    EXPECT_THAT(result.out, Not(HasSubstr(" in ["))) << verb << ": the words of CLI11";
  }
}

}  // namespace
}  // namespace nanwatch
