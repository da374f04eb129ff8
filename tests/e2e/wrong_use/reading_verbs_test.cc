// SPDX-License-Identifier: Apache-2.0
// The verbs that read, with nothing to read or with garbage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/e2e/wrong_use/tool_process.h"

namespace nanwatch {
namespace {

using ::testing::HasSubstr;

class ReadingVerbsTest : public ::testing::Test {
 protected:
  ReadingVerbsTest() {
    std::filesystem::create_directory(tool_.SegmentDir());
    chmod(tool_.SegmentDir().c_str(), 0700);
  }
  Tool tool_;
};

TEST_F(ReadingVerbsTest, WithoutARunTheCheckCannotTell) {
  const ToolResult result = tool_.Run({"report", "--check"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("nanwatch run --"));
  EXPECT_EQ(tool_.Run({"report"}).exit_code, 1);
}

TEST_F(ReadingVerbsTest, ARunThatIsNotKnownIsSaid) {
  for (const char* verb : {"report", "tail"}) {
    const ToolResult result = tool_.Run({verb, "7f3a"});
    EXPECT_EQ(result.exit_code, 1) << verb;
    EXPECT_THAT(result.err, HasSubstr("nanwatch")) << verb;
  }
}

TEST_F(ReadingVerbsTest, WhereNoRunIsKnownTheDirectoryIsNamedAndWhatIsWrongThere) {
  const std::string state = tool_.home().Path("state");
  EXPECT_THAT(tool_.Run({"ps"}).out, HasSubstr("looked in " + state + ", which does not exist"));
  std::filesystem::create_directory(state);
  EXPECT_THAT(tool_.Run({"tail"}).err, HasSubstr(state + ", where there is no database"));
  if (chown(state.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "only root can give it away";
  EXPECT_THAT(tool_.Run({"report"}).err, HasSubstr(state + ", which belongs to"));
}

TEST_F(ReadingVerbsTest, AttachSaysThatNothingIsWatched) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"attach", "--all"},
                                                {"attach", "7f3a"},
                                                {"detach", "--job", "x"}}) {
    const ToolResult result = tool_.Run(words);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err,
              "nanwatch: no process is being watched (looked in " + tool_.SegmentDir() + ")\n");
  }
}

TEST_F(ReadingVerbsTest, FollowingNothingSaysSoAndEnds) {
  const ToolResult result = tool_.Run({"tail", "-f"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("there is no run yet"));
}

TEST_F(ReadingVerbsTest, OutputThatFindsNoRoomIsAFailure) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  for (const char* verb : {"ps", "ps --json", "top --once", "doctor", "--version"}) {
    const ToolResult result =
        tool_.As("/bin/sh").Run({"-c", std::string(NANWATCH_TOOL) + " " + verb + " >/dev/full"});
    EXPECT_EQ(result.exit_code, 1) << verb;
    EXPECT_THAT(result.err, HasSubstr("could not be written: No space left on device")) << verb;
  }
}

TEST_F(ReadingVerbsTest, GarbageAmongTheSegmentsIsNamed) {
  tool_.home().Write("segments/nw-1-0123456789abcdef.seg", std::string(4096, '\xff'));
  tool_.home().Write("segments/nw-2-0123456789abcdef.seg", "NANWATCH");
  const ToolResult ps = tool_.Run({"ps"});
  EXPECT_EQ(ps.exit_code, 0);
  EXPECT_THAT(ps.out, HasSubstr("nw-1-0123456789abcdef.seg"));
  EXPECT_THAT(ps.out, HasSubstr("nw-2-0123456789abcdef.seg"));
  EXPECT_THAT(tool_.Run({"doctor"}).out, HasSubstr("nw-1-0123456789abcdef.seg"));
}

TEST_F(ReadingVerbsTest, GarbageAmongTheSegmentsDoesNotTouchACommand) {
  tool_.home().Write("segments/nw-1-0123456789abcdef.seg", std::string(4096, '\xff'));
  EXPECT_EQ(tool_.RunScript("exit 7").exit_code, 7);
}

TEST_F(ReadingVerbsTest, ADamagedDatabaseIsSaidAndLeftAlone) {
  std::filesystem::create_directory(tool_.home().Path("state"));
  const std::string garbage(8192, 'x');
  tool_.home().Write("state/nanwatch.db", garbage);
  const ToolResult result = tool_.Run({"ps"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("the database cannot be read"));
  EXPECT_EQ(tool_.home().Read("state/nanwatch.db"), garbage);
}

TEST_F(ReadingVerbsTest, JsonIsAlwaysADocument) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"ps", "--json"},
                                                {"top", "--json"},
                                                {"doctor", "--json"},
                                                {"--version", "--json"}}) {
    const ToolResult result = tool_.Run(words);
    EXPECT_TRUE(nlohmann::json::accept(result.out)) << words[0] << result.out;
  }
}

TEST_F(ReadingVerbsTest, TopWithoutATerminalPrintsOnceAndSaysThatThereIsNoJob) {
  const ToolResult result = tool_.Run({"top"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("nanwatch run --"));
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(tool_.Run({"top", "--interval", "0"}).exit_code, 2);
}

TEST_F(ReadingVerbsTest, DoctorNamesALibraryThatIsPreloadedAndMissing) {
  const ToolResult result = tool_.With("LD_PRELOAD", "/nonexistent/libgone.so").Run({"doctor"});
  EXPECT_THAT(result.out, HasSubstr("/nonexistent/libgone.so, which does not exist"));
}

TEST_F(ReadingVerbsTest, DoctorSaysThatObservationIsSwitchedOff) {
  const ToolResult result = tool_.With("NANWATCH", "0").Run({"doctor"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("unset it"));
}

}  // namespace
}  // namespace nanwatch
