// SPDX-License-Identifier: Apache-2.0
// LD_PRELOAD as the command finds it. Needs the built preload library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/e2e/wrong_use/tool_process.h"

namespace nanwatch {
namespace {

using ::testing::HasSubstr;

constexpr char kPrint[] = "printf %s \"$LD_PRELOAD\"";

class PreloadedCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(PreloadLibrary()))
      GTEST_SKIP() << PreloadLibrary() << " is not built";
  }
  // A library of the host that may be preloaded by anything.
  [[nodiscard]] static std::string Bystander() {
    for (const char* path : {"/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6",
                             "/lib64/libm.so.6", "/usr/lib/libm.so.6"}) {
      if (std::filesystem::exists(path)) return path;
    }
    return "";
  }
  Tool tool_;
};

TEST_F(PreloadedCommandTest, NamesOursAlone) {
  EXPECT_EQ(tool_.RunScript(kPrint).out, PreloadLibrary());
}

TEST_F(PreloadedCommandTest, NamesOursBehindWhatWasThere) {
  if (Bystander().empty()) GTEST_SKIP() << "no libm where it was looked for";
  EXPECT_EQ(tool_.With("LD_PRELOAD", Bystander()).RunScript(kPrint).out,
            Bystander() + ":" + PreloadLibrary());
}

TEST_F(PreloadedCommandTest, IsLeftAloneWhereOursIsNamedAlready) {
  EXPECT_EQ(tool_.With("LD_PRELOAD", PreloadLibrary()).RunScript(kPrint).out, PreloadLibrary());
}

TEST_F(PreloadedCommandTest, HasAJobOfTwelveDigitsUnlessOneWasGiven) {
  EXPECT_EQ(tool_.RunScript("printf %s \"$NANWATCH_JOB\"").out.size(), 12u);
  EXPECT_EQ(tool_.With("NANWATCH_JOB", "mine").RunScript("printf %s \"$NANWATCH_JOB\"").out,
            "mine");
}

// A prefix is copied somewhere else and used from there.
std::string CopyPrefix(const std::string& to) {
  namespace fs = std::filesystem;
  const fs::path from = fs::path(NANWATCH_TOOL).parent_path();
  fs::create_directories(fs::path(to) / "bin");
  fs::create_directories(fs::path(to) / "lib");
  fs::create_hard_link(from / "nanwatch", fs::path(to) / "bin/nanwatch");
  fs::copy_file(PreloadLibrary(), fs::path(to) / "lib/libnanwatch.so");
  return to + "/bin/nanwatch";
}

TEST_F(PreloadedCommandTest, IsThatOfAMovedInstallation) {
  const std::string prefix = tool_.home().Path("moved");
  std::error_code error;
  if (std::filesystem::create_hard_link(NANWATCH_TOOL, tool_.home().Path("probe"), error); error) {
    GTEST_SKIP() << "the build and the temporary directory are on different file systems";
  }
  const ToolResult result = tool_.As(CopyPrefix(prefix)).RunScript(kPrint);
  EXPECT_EQ(result.out, prefix + "/lib/libnanwatch.so");
  EXPECT_THAT(result.err, HasSubstr("the daemon could not be started"));
}

TEST_F(PreloadedCommandTest, IsEmptyForAnInstallationThatLdPreloadCannotName) {
  const std::string prefix = tool_.home().Path("with space");
  std::error_code error;
  if (std::filesystem::create_hard_link(NANWATCH_TOOL, tool_.home().Path("probe"), error); error) {
    GTEST_SKIP() << "the build and the temporary directory are on different file systems";
  }
  const ToolResult result = tool_.As(CopyPrefix(prefix)).RunScript(kPrint);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("a space or a colon"));
}

}  // namespace
}  // namespace nanwatch
