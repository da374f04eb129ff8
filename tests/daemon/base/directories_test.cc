// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/directories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include "proto/wire/place.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

Environment With(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

TEST(SegmentDirectoryTest, IsThePerUserOneInSharedMemoryUnlessChosen) {
  EXPECT_EQ(SegmentDirectoryPath(With({})).value(),
            wire::DefaultDirectoryOf(geteuid(), wire::PlaceOfProcess(0).key).path);
  EXPECT_EQ(SegmentDirectoryPath(With({{"NANWATCH_DIR", "/a/b/"}})).value(), "/a/b");
}

TEST(SegmentDirectoryTest, RefusesRelativeAndOverlongPaths) {
  EXPECT_THAT(SegmentDirectoryPath(With({{"NANWATCH_DIR", "a"}})).status().message(),
              HasSubstr("not an absolute"));
  const std::string longest = "/" + std::string(179, 'a');
  EXPECT_TRUE(SegmentDirectoryPath(With({{"NANWATCH_DIR", longest}})).ok());
  EXPECT_THAT(SegmentDirectoryPath(With({{"NANWATCH_DIR", longest + "a"}})).status().message(),
              HasSubstr("181 bytes long; the longest that works is 180"));
}

TEST(SegmentDirectoryTest, IsMadePrivate) {
  TemporaryDirectory directory;
  ASSERT_TRUE(EnsureSegmentDirectory(directory / "segments").ok());
  struct stat info {};
  ASSERT_EQ(stat((directory / "segments").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(SegmentDirectoryTest, RefusesWhatCannotBeTrustedAndSaysWhatToDo) {
  TemporaryDirectory directory;
  const std::string path = directory / "segments";
  EXPECT_EQ(CheckPrivateDirectory(path).kind(), ErrorKind::kNotFound);
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  ASSERT_EQ(chmod(path.c_str(), 0770), 0);
  EXPECT_THAT(CheckPrivateDirectory(path).message(), HasSubstr("run: chmod 700 " + path));
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  EXPECT_TRUE(CheckPrivateDirectory(path).ok());
  ASSERT_EQ(symlink(path.c_str(), (directory / "link").c_str()), 0);
  EXPECT_THAT(EnsureSegmentDirectory(directory / "link").message(),
              HasSubstr("is a symbolic link"));
  std::ofstream(directory / "file") << "x";
  EXPECT_THAT(EnsureSegmentDirectory(directory / "file").message(),
              HasSubstr("is not a directory"));
}

TEST(SegmentDirectoryTest, RefusesOneOfAnotherUser) {
  TemporaryDirectory directory;
  const std::string path = directory / "segments";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  const bool is_root = geteuid() == 0;
  ASSERT_TRUE(!is_root || chown(path.c_str(), 12345, 12345) == 0);
  const Status refused = CheckPrivateDirectory(is_root ? path : "/");
  EXPECT_THAT(refused.message(), HasSubstr("belongs to user "));
}

TEST(StateDirectoryTest, FollowsTheVariablesInTheirOrder) {
  const std::string host = HostName();
  EXPECT_EQ(StateDirectoryPath(With({{"NANWATCH_STATE_DIR", "/s"}, {"HOME", "/h"}}))->path, "/s");
  EXPECT_EQ(StateDirectoryPath(With({{"XDG_STATE_HOME", "/tmp/x"}, {"HOME", "/tmp"}}))->path,
            "/tmp/x/nanwatch/" + host);
  EXPECT_EQ(StateDirectoryPath(With({{"HOME", "/tmp/h"}}))->path,
            "/tmp/h/.local/state/nanwatch/" + host);
  const StateDirectory without_home = StateDirectoryPath(With({})).value();
  EXPECT_EQ(without_home.path, "/var/tmp/nanwatch-" + std::to_string(geteuid()));
  EXPECT_THAT(without_home.note, HasSubstr("HOME is not set"));
}

TEST(StateDirectoryTest, IsMadeWithItsParents) {
  TemporaryDirectory directory;
  EXPECT_TRUE(EnsureStateDirectory(directory / "a/b/c").ok());
  EXPECT_TRUE(EnsureStateDirectory(directory / "a/b/c").ok());
}

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

TEST(StateDirectoryTest, OfOurFilesOnlyIsClosedToOthersByTheDaemon) {
  TemporaryDirectory directory;
  const std::string path = directory / "state";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  for (const char* name : {"nanwatch.db", "nanwatch.db-wal", "nanwatch.log.1", "events.jsonl",
                           "daemon.lock", "unseen-1", "unwatched-a"})
    std::ofstream(path + "/" + name) << "x";
  ASSERT_EQ(chmod(path.c_str(), 0775), 0);
  EXPECT_TRUE(EnsureStateDirectory(path).ok());
  EXPECT_EQ(ModeOf(path), 0775u) << "a tool changes nothing";
  std::string note;
  EXPECT_TRUE(EnsureStateDirectory(path, &note).ok());
  EXPECT_EQ(ModeOf(path), 0755u);
  EXPECT_THAT(note, HasSubstr("was closed to them"));
  EXPECT_TRUE(EnsureStateDirectory(path, &note).ok());
  EXPECT_EQ(note, "");
}

// /tmp of root, a team's directory, and one that somebody else works in.
TEST(StateDirectoryTest, ThatIsNotOursAloneStaysAsItIs) {
  for (const mode_t mode : {01777, 02775, 0775}) {
    TemporaryDirectory directory;
    const std::string path = directory / "shared";
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    if (mode == 0775) std::ofstream(path + "/thesis.tex") << "x";
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    std::string note;
    for (std::string* given : {&note, static_cast<std::string*>(nullptr)}) {
      const Status refused = EnsureStateDirectory(path, given);
      EXPECT_EQ(refused.kind(), ErrorKind::kPermission);
      EXPECT_THAT(refused.message(), HasSubstr("NANWATCH_STATE_DIR"));
      EXPECT_EQ(ModeOf(path), mode);
    }
  }
}

TEST(StateDirectoryTest, SaysWhatStandsInTheWay) {
  TemporaryDirectory directory;
  std::ofstream(directory / "file") << "x";
  const Status refused = EnsureStateDirectory(directory / "file/state");
  EXPECT_THAT(refused.message(), HasSubstr("NANWATCH_STATE_DIR"));
}

}  // namespace
}  // namespace nanwatch
