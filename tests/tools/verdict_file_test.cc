// SPDX-License-Identifier: Apache-2.0
#include "tools/verdict_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kLaunchers = 8;
constexpr int kRounds = 20;

// A document whose length differs from launcher to launcher, as verdicts do.
std::string DocumentOf(int launcher, int round) {
  return nlohmann::json({{"launcher", launcher},
                         {"round", round},
                         {"text", std::string(20'000 + launcher * 30'000, 'x')},
                         {"end", launcher}})
      .dump();
}

bool IsWhole(const std::string& text) {
  const auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return document.is_object() && document["end"] == document["launcher"];
}

mode_t ModeOf(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 07777u : 0;
}

// Processes that open the same file at once and write it at once; how many of them failed.
int LaunchAll(const std::string& path, int round) {
  std::vector<pid_t> launchers;
  for (int i = 0; i < kLaunchers; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      std::string error;
      VerdictFile file = VerdictFile::Open(path, error);
      _exit(error.empty() && file.Write(DocumentOf(i, round)).empty() ? 0 : 1);
    }
    launchers.push_back(pid);
  }
  int failed = 0;
  for (const pid_t pid : launchers) {
    int status = 0;
    waitpid(pid, &status, 0);
    failed += status == 0 ? 0 : 1;
  }
  return failed;
}

TEST(VerdictFile, HoldsTheDocumentAndANewline) {
  TemporaryDirectory directory;
  std::string error;
  VerdictFile file = VerdictFile::Open(directory.Path("v.json"), error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(file.Write("{}"), "");
  EXPECT_EQ(directory.Read("v.json"), "{}\n");
}

TEST(VerdictFile, AnOlderVerdictIsGoneBeforeTheJobStarts) {
  TemporaryDirectory directory;
  directory.Write("v.json", "the verdict of yesterday");
  std::string error;
  const VerdictFile file = VerdictFile::Open(directory.Path("v.json"), error);
  EXPECT_EQ(directory.Read("v.json"), "");
}

TEST(VerdictFile, OfSeveralLaunchersAtOnceIsOneWholeDocument) {
  TemporaryDirectory directory;
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_EQ(LaunchAll(directory.Path("v.json"), round), 0);
    const std::string text = directory.Read("v.json");
    ASSERT_TRUE(IsWhole(text)) << "round " << round << ", " << text.size() << " bytes";
    ASSERT_EQ(nlohmann::json::parse(text)["round"], round);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

TEST(VerdictFile, AReaderFindsAWholeDocumentOrNoFile) {
  TemporaryDirectory directory;
  const std::string path = directory.Path("v.json");
  std::atomic<bool> ended = false;
  int seen = 0;
  int broken = 0;
  std::thread reader([&] {
    while (!ended) {
      const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      std::string text;
      char piece[4096];
      for (ssize_t got = 0; (got = read(fd, piece, sizeof piece)) > 0;)
        text.append(piece, static_cast<size_t>(got));
      close(fd);
      ++seen;
      broken += IsWhole(text) ? 0 : 1;
    }
  });
  int failed = 0;
  for (int round = 0; round < kRounds; ++round) failed += LaunchAll(path, round);
  ended = true;
  reader.join();
  EXPECT_EQ(failed, 0);
  EXPECT_GT(seen, 0);
  EXPECT_EQ(broken, 0) << "of " << seen;
}

TEST(VerdictFile, KeepsThePermissionsOfTheFileThatItReplaces) {
  TemporaryDirectory directory;
  directory.Write("v.json", "old", 0640);
  std::string error;
  VerdictFile file = VerdictFile::Open(directory.Path("v.json"), error);
  EXPECT_EQ(file.Write("{}"), "");
  EXPECT_EQ(ModeOf(directory.Path("v.json")), 0640u);
}

TEST(VerdictFile, IsMadeUnderTheUmask) {
  TemporaryDirectory directory;
  const mode_t before = umask(027);
  std::string error;
  VerdictFile file = VerdictFile::Open(directory.Path("v.json"), error);
  EXPECT_EQ(file.Write("{}"), "");
  umask(before);
  EXPECT_EQ(ModeOf(directory.Path("v.json")), 0640u);
}

TEST(VerdictFile, ASymbolicLinkStaysAndItsTargetIsReplaced) {
  TemporaryDirectory directory;
  fs::create_directory(directory.Path("there"));
  fs::create_symlink("there/target.json", directory.Path("v.json"));
  for (const char* document : {"{\"a\":1}", "{\"a\":2}"}) {  // absent, then present
    std::string error;
    VerdictFile file = VerdictFile::Open(directory.Path("v.json"), error);
    EXPECT_EQ(error, "");
    EXPECT_EQ(file.Write(document), "");
    EXPECT_TRUE(fs::is_symlink(directory.Path("v.json")));
    EXPECT_EQ(directory.Read("there/target.json"), std::string(document) + "\n");
  }
}

TEST(VerdictFile, AFileWithASecondNameIsWrittenInPlace) {
  TemporaryDirectory directory;
  directory.Write("v.json", "the verdict of yesterday, which was longer");
  fs::create_hard_link(directory.Path("v.json"), directory.Path("other"));
  std::string error;
  VerdictFile file = VerdictFile::Open(directory.Path("v.json"), error);
  EXPECT_EQ(directory.Read("other"), "");
  EXPECT_EQ(file.Write("{}"), "");
  EXPECT_EQ(directory.Read("other"), "{}\n");
}

TEST(VerdictFile, InADirectoryThatTakesNoNewFileIsWrittenInPlace) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TemporaryDirectory directory;
  directory.Write("v.json", "the verdict of yesterday, which was longer", 0666);
  chmod(directory.path().c_str(), 0755);
  const pid_t pid = fork();
  if (pid == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    std::string error;
    VerdictFile file = VerdictFile::Open(directory.Path("v.json"), error);
    if (!error.empty() || fs::file_size(directory.Path("v.json")) != 0) _exit(3);
    _exit(file.Write("{}").empty() ? 0 : 4);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(directory.Read("v.json"), "{}\n");
}

TEST(VerdictFile, WhatIsOpenAlreadyIsWrittenTo) {
  TemporaryDirectory directory;
  directory.Write("out", "before");
  const int fd = open(directory.Path("out").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  std::string error;
  VerdictFile file = VerdictFile::Open("/proc/self/fd/" + std::to_string(fd), error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(file.Write("{}"), "");
  struct stat named {};
  struct stat opened {};
  ASSERT_EQ(stat(directory.Path("out").c_str(), &named), 0);
  ASSERT_EQ(fstat(fd, &opened), 0);
  close(fd);
  EXPECT_EQ(named.st_ino, opened.st_ino);
  EXPECT_EQ(directory.Read("out"), "{}\n");
}

TEST(VerdictFile, AFifoIsWrittenToAndStays) {
  TemporaryDirectory directory;
  const std::string path = directory.Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  std::string error;
  VerdictFile file = VerdictFile::Open(path, error);
  EXPECT_EQ(file.Write("{}"), "");
  char text[16] = "";
  EXPECT_EQ(read(reader, text, sizeof text), 3);
  close(reader);
  EXPECT_TRUE(fs::is_fifo(path));
}

TEST(VerdictFile, APathThatCannotBeWrittenIsASentence) {
  TemporaryDirectory directory;
  std::string error;
  (void)VerdictFile::Open(directory.Path("absent/v.json"), error);
  EXPECT_THAT(error, HasSubstr("nothing was started"));
}

TEST(VerdictFile, ADirectoryIsRefused) {
  TemporaryDirectory directory;
  std::string error;
  (void)VerdictFile::Open(directory.path(), error);
  EXPECT_NE(error, "");
}

TEST(VerdictFile, WithoutAPathNothingIsWritten) {
  std::string error;
  VerdictFile file = VerdictFile::Open("", error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(file.Write("{}"), "");
}

}  // namespace
}  // namespace nanwatch
