// SPDX-License-Identifier: Apache-2.0
// What ended processes left is removed by the next, if it holds nothing to tell or is too much.
#include "shim/host/segment_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utime.h>

#include <chrono>
#include <fstream>

#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

using testing::Contains;
using testing::Not;

class SegmentSweep : public testing::Test {
 protected:
  // The name of the segment of a process that has ended; with `bad` it holds a finding.
  std::string Dead(bool bad, const char* job = "") {
    return InChild([&]() -> std::string {
      setenv(wire::kEnvJob, job, 1);
      Segment* segment = place_.Create();
      if (segment == nullptr) return "";
      if (bad) segment->live().values_bad = 1;
      return std::filesystem::path(segment->path()).filename();
    });
  }
  Swept Run(const SweepLimits& limits = {.time_ns = 5'000'000'000}) {
    std::filesystem::create_directory(place_.directory());
    const int directory = open(place_.directory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const Swept swept = Sweep(directory, limits);
    close(directory);
    return swept;
  }
  std::string Write(const std::string& name, int age_seconds) {
    std::filesystem::create_directory(place_.directory());
    const std::string path = place_.directory() + "/" + name;
    std::ofstream(path) << "x";
    const utimbuf times{time(nullptr) - age_seconds, time(nullptr) - age_seconds};
    EXPECT_EQ(utime(path.c_str(), &times), 0);
    return name;
  }
  SegmentPlace place_;
};

TEST_F(SegmentSweep, RemovesCleanSegmentsOfTheDeadAndKeepsFindings) {
  const std::string clean = Dead(false);
  const std::string bad = Dead(true);
  EXPECT_EQ(Run().clean, 1);
  EXPECT_EQ(place_.Files(), std::vector<std::string>{bad});
}

TEST_F(SegmentSweep, LeavesThoseOfTheLivingAlone) {
  Segment* ours = place_.Create();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    Segment* segment = place_.Create();
    (void)!write(ends[1], segment != nullptr ? "y" : "n", 1);
    for (;;) pause();
  }
  char made = 'n';
  ASSERT_EQ(read(ends[0], &made, 1), 1);
  EXPECT_EQ(made, 'y');
  EXPECT_EQ(Run().clean, 0);
  EXPECT_EQ(place_.Files().size(), 2u);
  EXPECT_EQ(LockHolder(ours->path()), getpid()) << "a look gave up our lock";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(Run().clean, 1);
}

TEST_F(SegmentSweep, LeavesThoseOfItsOwnJobToWhoeverStartedIt) {
  Dead(false, "sweep-job");
  setenv(wire::kEnvJob, "sweep-job", 1);
  EXPECT_EQ(Run().clean, 0);
  setenv(wire::kEnvJob, "another", 1);
  EXPECT_EQ(Run().clean, 1);
  unsetenv(wire::kEnvJob);
}

TEST_F(SegmentSweep, LeavesThoseThatALivingRunWaitsFor) {
  setenv(wire::kEnvRun, std::to_string(getpid()).c_str(), 1);
  Dead(false);
  unsetenv(wire::kEnvRun);
  EXPECT_EQ(Run().clean, 0);
}

TEST_F(SegmentSweep, LeavesAllSegmentsToADaemon) {
  Dead(false);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t daemon = fork();
  if (daemon == 0) {
    const std::string path = place_.directory() + "/" + wire::kDaemonLock;
    const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    (void)!write(ends[1], fcntl(fd, F_SETLK, &lock) == 0 ? "y" : "n", 1);
    for (;;) pause();
  }
  char held = 'n';
  ASSERT_EQ(read(ends[0], &held, 1), 1);
  ASSERT_EQ(held, 'y');
  EXPECT_EQ(Run().clean, 0);
  kill(daemon, SIGKILL);
  waitpid(daemon, nullptr, 0);
  EXPECT_EQ(Run().clean, 1);
}

TEST_F(SegmentSweep, RemovesTheOldestFindingsWhereThereAreTooMany) {
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.push_back(Dead(true));
  EXPECT_EQ(Run({.time_ns = 5'000'000'000, .unread_files_max = 3}).unread, 2);
  EXPECT_THAT(place_.Files(), testing::UnorderedElementsAre(names[2], names[3], names[4]));
  EXPECT_EQ(Run({.time_ns = 5'000'000'000, .unread_bytes_max = 200'000}).unread, 2);
  EXPECT_EQ(place_.Files(), std::vector<std::string>{names[4]});
}

TEST_F(SegmentSweep, OfAnotherBootOrPidNamespaceAreNobodysToRemove) {
  const std::string name = Dead(false);
  const std::string path = place_.directory() + "/" + name;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offsetof(wire::SegmentHeader, pid_namespace));
  const uint64_t other = 1;
  file.write(reinterpret_cast<const char*>(&other), sizeof other);
  file.close();
  EXPECT_EQ(Run().clean, 0);
  EXPECT_EQ(place_.Files(), std::vector<std::string>{name});
}

TEST_F(SegmentSweep, RemovesWhatKilledToolsLeftOnceItIsOld) {
  const std::string dead_pid = InChild([] { return std::to_string(getpid()); });
  Write("nw-" + dead_pid + "-0123456789abcdef.tmp", 100);
  Write("job.exit.12.tmp", 7200);
  Write("attach-12-99", 7200);
  Write("job.12.unwatched", 7200);
  const std::string young = Write("attach-13-99", 10);
  const std::string foreign = Write("somebody's file", 7200);
  const std::string ours = Write("nw-" + std::to_string(getpid()) + "-0123456789abcdee.tmp", 100);
  EXPECT_EQ(Run().leftover, 4);
  EXPECT_THAT(place_.Files(), testing::UnorderedElementsAre(young, foreign, ours));
}

TEST_F(SegmentSweep, TakesNoLongerInADirectoryOfTenThousandFiles) {
  std::filesystem::create_directory(place_.directory());
  for (int i = 0; i < 10'000; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "nw-%d-%016x.seg", 100'000'000 + i, i);
    std::ofstream(place_.directory() + "/" + name);
  }
  const auto start = std::chrono::steady_clock::now();
  Run(SweepLimits{});
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), 100)
      << "5 ms are meant; the machine may be busy";
}

TEST_F(SegmentSweep, HappensWhereAProcessMakesItsSegment) {
  const std::string clean = Dead(false);
  const std::string directory = place_.directory();
  SegmentReport report;
  ASSERT_NE(Segment::Create({.directory = directory.c_str(), .layout = kTinyLayout, .sweeps = true},
                            report),
            nullptr);
  EXPECT_THAT(place_.Files(), Not(Contains(clean)));
}

TEST_F(SegmentSweep, LeavesNothingOfAProcessThatRetiresWithNothingToTell) {
  EXPECT_EQ(
      InChild([&]() -> std::string { return place_.Create()->Retire(false) ? "removed" : "left"; }),
      "removed");
  EXPECT_TRUE(place_.Files().empty());
  EXPECT_EQ(
      InChild([&]() -> std::string { return place_.Create()->Retire(true) ? "removed" : "left"; }),
      "left");
  EXPECT_EQ(place_.Files().size(), 1u);
  setenv(wire::kEnvRun, std::to_string(getpid()).c_str(), 1);
  EXPECT_EQ(
      InChild([&]() -> std::string { return place_.Create()->Retire(false) ? "removed" : "left"; }),
      "left");
  unsetenv(wire::kEnvRun);
}

}  // namespace
}  // namespace nanwatch
