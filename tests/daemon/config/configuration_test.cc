// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "daemon/config/settings.h"
#include "proto/wire/capsule.h"
#include "proto/wire/naming.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A home, a project in it and a system's directory, all empty.
class ConfigurationTest : public ::testing::Test {
 protected:
  ConfigurationTest() {
    std::string name = std::filesystem::temp_directory_path() / "nanwatch-config-XXXXXX";
    root_ = mkdtemp(name.data());
    home_ = root_ + "/home";
    project_ = home_ + "/project";
    std::filesystem::create_directories(project_ + "/deep/below");
    std::filesystem::create_directories(home_ + "/.config/nanwatch");
    user_file_ = home_ + "/.config/nanwatch/nanwatch.toml";
    system_file_ = root_ + "/etc.toml";
    variables_["HOME"] = home_;
  }
  ~ConfigurationTest() override {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }

  static std::string Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms(0644));
    return path;
  }

  Result<Configuration> Read(const std::string& directory) {
    return ReadConfiguration([this](const char* name) { return variables_[name]; }, directory,
                             system_file_);
  }

  // The value of the only key in a file with this text, or what is wrong with it.
  std::string ValueOf(const std::string& text) {
    Write(project_ + "/nanwatch.toml", text);
    const Result<Configuration> read = Read(project_);
    if (!read.ok()) return read.status().message();
    return read->values.size() == 1 ? read->values[0].value : "";
  }

  std::string root_;
  std::string home_;
  std::string project_;
  std::string user_file_;
  std::string system_file_;
  std::map<std::string, std::string> variables_;
};

TEST_F(ConfigurationTest, IsEmptyWithoutAFile) {
  const Result<Configuration> read = Read(project_);
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read->files, IsEmpty());
  EXPECT_THAT(read->values, IsEmpty());
}

TEST_F(ConfigurationTest, TakesEachKeyFromTheNearestFileThatHasIt) {
  const std::string project = Write(project_ + "/nanwatch.toml", "[run]\nlevel = 'canary'\n");
  Write(user_file_, "[run]\nlevel = 'idle'\nbudget = 3\n");
  Write(system_file_, "state_dir = '/srv/nanwatch'\n\n[run]\nbudget = 9\n");
  const Result<Configuration> read = Read(project_ + "/deep/below");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(read->files, ElementsAre(project, user_file_, system_file_));
  EXPECT_EQ(read->Find(wire::kEnvLevel)->value, "canary");
  EXPECT_EQ(read->Find(wire::kEnvLevel)->line, 2u);
  EXPECT_EQ(read->Find(wire::kEnvBudget)->value, "3");
  EXPECT_EQ(read->Find(wire::kEnvBudget)->file, user_file_);
  EXPECT_EQ(read->Find(wire::kEnvStateDir)->value, "/srv/nanwatch");
  EXPECT_EQ(read->Find(wire::kEnvStats), nullptr);
}

TEST_F(ConfigurationTest, ReadsTheNamedFileAlone) {
  Write(project_ + "/nanwatch.toml", "[run]\nlevel = 'canary'\n");
  const std::string named = Write(root_ + "/mine.toml", "[run]\nstats = 5\n");
  variables_["NANWATCH_CONFIG"] = named;
  const Result<Configuration> read = Read(project_);
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read->files, ElementsAre(named));
  EXPECT_EQ(read->Find(wire::kEnvLevel), nullptr);
  variables_["NANWATCH_CONFIG"] = root_ + "/none.toml";
  EXPECT_THAT(Read(project_).status().message(), HasSubstr("NANWATCH_CONFIG: cannot read"));
}

TEST_F(ConfigurationTest, LeavesOutAFileThatEverybodyMayWrite) {
  const std::string path = Write(project_ + "/nanwatch.toml", "[run]\nlevel = 'idle'\n");
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  const Result<Configuration> read = Read(project_);
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read->values, IsEmpty());
  ASSERT_EQ(read->notes.size(), 1u);
  EXPECT_THAT(read->notes[0], HasSubstr("everybody may write to it"));
}

TEST_F(ConfigurationTest, GivesValuesAsTheVariablesHaveThem) {
  EXPECT_EQ(ValueOf("[run]\nlevel = \"full\""), "full");
  EXPECT_EQ(ValueOf("[run]\nbudget = 2.5"), "2.5");
  EXPECT_EQ(ValueOf("[run]\nbudget = '2%'"), "2%");
  EXPECT_EQ(ValueOf("[run]\nkernels = true"), "1");
  EXPECT_EQ(ValueOf("[run]\nkernels = false"), "0");
  EXPECT_EQ(ValueOf("[run]\ncapsule_limit = '64M'"), "64M");
  EXPECT_EQ(ValueOf("[run]\nlog = 'stderr'"), "stderr");
  EXPECT_EQ(ValueOf("run.log = 'logs/nanwatch'"), project_ + "/logs/nanwatch");
  EXPECT_EQ(ValueOf("state_dir = '~/state'"), home_ + "/state");
  EXPECT_EQ(ValueOf("dir = '/dev/shm/mine'"), "/dev/shm/mine");
  EXPECT_EQ(ValueOf("[run]\nignore = ['op=aten::log', 'layer=mask*']"),
            "op=aten::log\nlayer=mask*");
  EXPECT_EQ(ValueOf("[run]\nignore = '@rules'"), "@" + project_ + "/rules");
  EXPECT_EQ(ValueOf("[serve]\nhosts = ['a', 'b']"), "a,b");
}

TEST_F(ConfigurationTest, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(ValueOf("[run]\n\nlevle = 'full'"),
              EndsWith("/nanwatch.toml:3:1: there is no setting 'run.levle'; did you mean "
                       "'run.level'?"));
  EXPECT_THAT(ValueOf("level = 'full'"), EndsWith("did you mean 'run.level'?"));
  EXPECT_THAT(ValueOf("[runs]\nx = 1"),
              EndsWith("there is no section '[runs]'; did you mean '[run]'?"));
  EXPECT_THAT(ValueOf("[server]\nx = 1"), EndsWith("did you mean '[serve]'?"));
  EXPECT_THAT(ValueOf("[zebra]\nx = 1"),
              EndsWith("the sections are [run], [serve], [forward] and [fleet]"));
  EXPECT_THAT(ValueOf("zebra = 1"),
              EndsWith("there is no setting 'zebra'; 'nanwatch config' lists them"));
  EXPECT_THAT(ValueOf("run = 'x'"), HasSubstr("there is no setting 'run'"));
  EXPECT_THAT(ValueOf("[run.level]\nx = 1"), EndsWith(":1:1: run.level takes text, in quotes"));
  EXPECT_THAT(ValueOf("[run]\nlevel = 3"), EndsWith(":2:9: run.level takes text, in quotes"));
  EXPECT_THAT(ValueOf("[run]\nkernels = 'yes'"), EndsWith("run.kernels takes true or false"));
  EXPECT_THAT(ValueOf("[run]\nignore = [1]"), HasSubstr("run.ignore takes a list of texts"));
  EXPECT_THAT(ValueOf("[run]\nignore = ['@rules', 'op=x']"), HasSubstr("must be the only entry"));
  EXPECT_THAT(ValueOf("[run]\nignore = ['op=x', '@rules']"), HasSubstr("must be the only entry"));
  EXPECT_THAT(ValueOf("[run\nlevel"), HasSubstr("/nanwatch.toml:1:5: this is not TOML:"));
  EXPECT_THAT(ValueOf("[run]\nlevel = 'a'\nlevel = 'b'"), HasSubstr(":3:9: this is not TOML:"));
}

TEST_F(ConfigurationTest, SurvivesFilesThatAreNone) {
  std::filesystem::create_directory(project_ + "/nanwatch.toml");
  EXPECT_THAT(Read(project_).status().message(), HasSubstr("is not a regular file"));
  std::filesystem::remove(project_ + "/nanwatch.toml");
  EXPECT_THAT(ValueOf(std::string((1 << 20) + 1, '#')), HasSubstr("larger than 1 MiB"));
  EXPECT_THAT(ValueOf("run.level = '\xff'"), HasSubstr("this is not TOML"));
}

TEST_F(ConfigurationTest, LetsVariablesWinAndKeepsSectionsApart) {
  Write(project_ + "/nanwatch.toml",
        "dir = '/a'\n[run]\nlevel = 'full'\nstats = 7\n[serve]\nlisten = 'here'\n");
  const Result<Configuration> read = Read(project_);
  ASSERT_TRUE(read.ok());
  unsetenv(wire::kEnvDir);
  unsetenv(wire::kEnvStats);
  unsetenv(kEnvServeListen);
  setenv(wire::kEnvLevel, "idle", 1);
  ApplyConfiguration(*read, "run");
  EXPECT_STREQ(getenv(wire::kEnvDir), "/a");
  EXPECT_STREQ(getenv(wire::kEnvStats), "7");
  EXPECT_STREQ(getenv(wire::kEnvLevel), "idle");
  EXPECT_EQ(getenv(kEnvServeListen), nullptr);
  EXPECT_EQ(NameOfSetting(*read, wire::kEnvLevel), "NANWATCH_LEVEL");
  EXPECT_EQ(NameOfSetting(*read, wire::kEnvStats), "run.stats (" + project_ + "/nanwatch.toml:4)");
  for (const char* variable : {wire::kEnvDir, wire::kEnvStats, wire::kEnvLevel}) unsetenv(variable);
}

TEST(Settings, HaveKeysAndVariablesOfTheirOwn) {
  std::map<std::string_view, int> keys;
  std::map<std::string_view, int> variables;
  for (const Setting& setting : Settings()) {
    EXPECT_EQ(++keys[setting.key], 1) << setting.key;
    EXPECT_EQ(++variables[setting.variable], 1) << setting.variable;
    EXPECT_FALSE(ExampleOf(setting.kind).empty());
  }
}

TEST_F(ConfigurationTest, ATokenOfOneFileNeverGoesToAnAddressOfAnother) {
  Write(user_file_, "[forward]\nto = \"https://ours\"\ntoken_file = \"token\"\n");
  Write(project_ + "/nanwatch.toml", "[forward]\nto = \"https://theirs\"\n");
  Result<Configuration> read = Read(project_);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->Find(kEnvForwardTo)->value, "https://theirs");
  EXPECT_EQ(read->Find(kEnvForwardTokenFile), nullptr);
  EXPECT_THAT(read->notes, ElementsAre(HasSubstr("forward.token_file in " + user_file_)));
  // And the other way round.
  Write(project_ + "/nanwatch.toml", "[forward]\ntoken_file = \"theirs\"\n");
  read = Read(project_);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->Find(kEnvForwardTokenFile)->value, home_ + "/.config/nanwatch/token");
}

TEST_F(ConfigurationTest, ATokenOfAFileStaysAtHomeWhereTheEnvironmentNamesAnotherAddress) {
  Write(user_file_, "[forward]\nto = \"https://ours\"\ntoken_file = \"/token\"\n");
  const Result<Configuration> read = Read(project_);
  ASSERT_TRUE(read.ok());
  setenv(kEnvForwardTo, "https://theirs", 1);
  unsetenv(kEnvForwardTokenFile);
  ApplyConfiguration(*read, "forward");
  EXPECT_EQ(getenv(kEnvForwardTokenFile), nullptr);
  setenv(kEnvForwardTo, "https://ours", 1);
  ApplyConfiguration(*read, "forward");
  EXPECT_STREQ(getenv(kEnvForwardTokenFile), "/token");
  unsetenv(kEnvForwardTo);
  unsetenv(kEnvForwardTokenFile);
}

TEST_F(ConfigurationTest, TheFleetThatIsAskedHoldsForAllWhoMayAskOne) {
  Write(user_file_, "[fleet]\nurl = \"https://ours\"\ntoken_file = \"/token\"\n");
  const Result<Configuration> read = Read(project_);
  ASSERT_TRUE(read.ok());
  for (const char* verb : {"run", "forward", "capsule"}) {
    ApplyConfiguration(*read, verb);
    EXPECT_EQ(getenv(kEnvFleet), nullptr) << verb;
  }
  for (const char* verb : {"ps", "top", "tail", "report", "serve", "fleet"}) {
    ApplyConfiguration(*read, verb);
    EXPECT_STREQ(getenv(kEnvFleet), "https://ours") << verb;
    EXPECT_STREQ(getenv(kEnvFleetTokenFile), "/token") << verb;
    unsetenv(kEnvFleet);
    unsetenv(kEnvFleetTokenFile);
  }
  setenv(kEnvFleet, "https://theirs", 1);
  ApplyConfiguration(*read, "ps");
  EXPECT_EQ(getenv(kEnvFleetTokenFile), nullptr);
  unsetenv(kEnvFleet);
}

}  // namespace
}  // namespace nanwatch
