// SPDX-License-Identifier: Apache-2.0
// Directories that cannot be used: the command runs all the same, and a sentence says what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/e2e/wrong_use/tool_process.h"

namespace nanwatch {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class WrongDirectoryTest : public ::testing::Test {
 protected:
  // The command runs unobserved, keeps its status and output, and `sentence` is said.
  void ExpectUnobserved(const std::string& sentence) {
    const ToolResult result = tool_.RunScript("printf '%s' \"<$LD_PRELOAD>\"; exit 7");
    EXPECT_EQ(result.exit_code, 7);
    EXPECT_EQ(result.out, "<>");
    EXPECT_THAT(result.err,
                AnyOf(HasSubstr(sentence), HasSubstr("there is no " + PreloadLibrary())));
  }
  Tool tool_;
};

TEST_F(WrongDirectoryTest, ASegmentDirectoryWithTooLongAName) {
  tool_.With("NANWATCH_DIR", "/tmp/" + std::string(200, 'x'));
  ExpectUnobserved("choose a shorter path");
}

TEST_F(WrongDirectoryTest, ASegmentDirectoryThatOthersCanWrite) {
  const std::string path = tool_.home().Path("open");
  std::filesystem::create_directory(path);
  chmod(path.c_str(), 0777);
  tool_.With("NANWATCH_DIR", path);
  ExpectUnobserved("chmod 700 " + path);
}

TEST_F(WrongDirectoryTest, ASegmentDirectoryOfAnotherUser) {
  const std::string path = tool_.home().Path("theirs");
  std::filesystem::create_directory(path);
  chmod(path.c_str(), 0700);
  if (chown(path.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can give a directory away";
  tool_.With("NANWATCH_DIR", path);
  ExpectUnobserved("belongs to user 12345");
}

TEST_F(WrongDirectoryTest, ASegmentDirectoryThatIsALinkOrAFile) {
  std::filesystem::create_symlink("/tmp", tool_.home().Path("link"));
  tool_.With("NANWATCH_DIR", tool_.home().Path("link"));
  ExpectUnobserved("symbolic link");
  tool_.With("NANWATCH_DIR", tool_.home().Write("file", ""));
  ExpectUnobserved("is not a directory");
}

TEST_F(WrongDirectoryTest, ASegmentDirectoryThatIsNoAbsolutePath) {
  tool_.With("NANWATCH_DIR", "segments");
  ExpectUnobserved("not an absolute path");
}

TEST_F(WrongDirectoryTest, ASegmentDirectoryRemovedUnderTheRunningCommand) {
  const ToolResult result = tool_.RunScript("rm -rf \"$NANWATCH_DIR\"; echo mine; exit 7");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "mine\n");
}

TEST_F(WrongDirectoryTest, AStateDirectoryThatCannotBeWritten) {
  tool_.With("NANWATCH_STATE_DIR", tool_.home().Write("file", "") + "/state");
  const ToolResult result = tool_.RunScript("echo mine; exit 7");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "mine\n");
  EXPECT_THAT(result.err, AnyOf(HasSubstr("the database is in " + tool_.SegmentDir() + "/state"),
                                HasSubstr("unobserved")));
}

TEST_F(WrongDirectoryTest, DoctorFindsThemToo) {
  tool_.With("NANWATCH_DIR", "segments");
  const ToolResult result = tool_.Run({"doctor", "--json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("not an absolute path"));
}

TEST_F(WrongDirectoryTest, DoctorFindsATmpfsTooSmallForASegment) {
  const std::string path = tool_.home().Path("small");
  std::filesystem::create_directory(path);
  if (mount("none", path.c_str(), "tmpfs", 0, "size=1m,mode=0700") != 0) {
    GTEST_SKIP() << "a tmpfs cannot be mounted here";
  }
  const ToolResult result = tool_.With("NANWATCH_DIR", path).Run({"doctor"});
  umount2(path.c_str(), MNT_DETACH);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("give /dev/shm more room"));
}

}  // namespace
}  // namespace nanwatch
