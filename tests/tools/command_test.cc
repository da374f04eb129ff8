// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/tools/temporary_directory.h"
#include "tools/exit_codes.h"

namespace nanwatch {
namespace {

using ::testing::HasSubstr;

TEST(Command, IsFoundOnTheSearchPathInItsOrder) {
  TemporaryDirectory first;
  TemporaryDirectory second;
  second.Write("train", "#!/bin/sh\n", 0700);
  const CommandLookup lookup = FindCommand("train", first.path() + ":" + second.path());
  EXPECT_EQ(lookup.exit_code, 0);
  EXPECT_EQ(lookup.path, second.Path("train"));
}

TEST(Command, ThatIsNowhereGives127) {
  TemporaryDirectory empty;
  EXPECT_EQ(FindCommand("train", empty.path()).exit_code, kExitNotFound);
  EXPECT_EQ(FindCommand(empty.Path("train"), "").exit_code, kExitNotFound);
  EXPECT_EQ(FindCommand("", "/bin").exit_code, kExitNotFound);
}

TEST(Command, WithoutExecutePermissionGives126AndSaysHowToRunAScript) {
  TemporaryDirectory directory;
  const std::string script = directory.Write("train.py", "pass\n", 0600);
  const CommandLookup lookup = FindCommand(script, "");
  EXPECT_EQ(lookup.exit_code, kExitNotExecutable);
  EXPECT_THAT(lookup.message, HasSubstr("-- python " + script));
}

TEST(Command, AnExecutableLaterOnThePathWinsOverAFileThatIsNot) {
  TemporaryDirectory first;
  TemporaryDirectory second;
  first.Write("train", "", 0600);
  second.Write("train", "#!/bin/sh\n", 0700);
  EXPECT_EQ(FindCommand("train", first.path() + ":" + second.path()).path, second.Path("train"));
  EXPECT_EQ(FindCommand("train", first.path()).exit_code, kExitNotExecutable);
}

TEST(Command, ADirectoryIsNone) {
  TemporaryDirectory directory;
  const CommandLookup lookup = FindCommand(directory.path(), "");
  EXPECT_EQ(lookup.exit_code, kExitNotExecutable);
  EXPECT_THAT(lookup.message, HasSubstr("directory"));
}

TEST(Command, AMissingInterpreterIsToldFromAMissingFile) {
  const CommandLookup lookup = ExplainExecFailure("./train", ENOENT);
  EXPECT_EQ(lookup.exit_code, kExitNotExecutable);
  EXPECT_THAT(lookup.message, HasSubstr("interpreter"));
}

}  // namespace
}  // namespace nanwatch
