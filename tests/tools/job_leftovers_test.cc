// SPDX-License-Identifier: Apache-2.0
// What `run` takes away itself: marks of processes without a segment, and what it has read.
#include "tools/job_leftovers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/fakes/segment_builder.h"
#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

class JobLeftovers : public testing::Test {
 protected:
  JobLeftovers() {
    places_.segment_dir = directory_.path();
    places_.state_dir = directory_.path();
    places_.database = directory_.Path("nanwatch.db");
  }
  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  TemporaryDirectory directory_;
  Places places_;
};

// A number that no process has.
std::string Ended() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  return std::to_string(pid);
}

TEST_F(JobLeftovers, TheMarksOfEndedProcessesSayWhyTheyWereNotWatched) {
  const std::string one = Ended();
  const std::string two = Ended();
  directory_.Write("my.job." + one + ".unwatched", "");
  directory_.Write("my.job." + two + ".unwatched", "no_observer 2.3.1: build it\n");
  directory_.Write("my.job." + std::to_string(getpid()) + ".unwatched", "ended_early\n");
  directory_.Write("my." + one + ".unwatched", "");
  directory_.Write("my.job.x.unwatched", "");
  const std::vector<UnwatchedProcess> unwatched = UnwatchedOfJob(places_, "my.job");
  ASSERT_EQ(unwatched.size(), 2u);
  const bool in_order = std::to_string(unwatched[0].pid()) == one;
  EXPECT_EQ(unwatched[in_order ? 0 : 1].reason(), "no_room");
  EXPECT_EQ(unwatched[in_order ? 1 : 0].reason(), "no_observer");
  EXPECT_EQ(unwatched[in_order ? 1 : 0].detail(), "2.3.1: build it");
}

TEST_F(JobLeftovers, WhatWasKeptIsStillKnownWhenTheMarksAreGone) {
  const std::string pid = Ended();
  directory_.Write("j." + pid + ".unwatched", "not_started a planted NaN went unseen\n");
  KeepUnwatched(places_, "j", UnwatchedOfJob(places_, "j"));
  EXPECT_EQ(Files(), std::set<std::string>{"unwatched-j"});
  const std::vector<UnwatchedProcess> unwatched = UnwatchedOfJob(places_, "j");
  ASSERT_EQ(unwatched.size(), 1u);
  EXPECT_EQ(std::to_string(unwatched[0].pid()), pid);
  EXPECT_EQ(unwatched[0].reason(), "not_started");
  EXPECT_EQ(unwatched[0].detail(), "a planted NaN went unseen");
  EXPECT_TRUE(UnwatchedOfJob(places_, "other").empty());
}

TEST_F(JobLeftovers, RemovesWhatEndedProcessesOfTheJobLeftAndNothingElse) {
  const SegmentBuilder dead(directory_.path(), {.nonce = 1, .job = "one", .dead = true});
  const SegmentBuilder live(directory_.path(), {.nonce = 2, .job = "one"});
  const SegmentBuilder other(directory_.path(), {.nonce = 3, .job = "two", .dead = true});
  directory_.Write("one.exit", "{}");
  Observations observations(places_);
  RemoveReadSegments(observations, "one");
  EXPECT_EQ(Files(), (std::set<std::string>{live.name(), other.name()}));
}

// What was not read of it is nowhere else.
TEST_F(JobLeftovers, ASegmentThatWasNotReadToItsEndStays) {
  constexpr SegmentLayout kFull = SmallLayoutWithRing(1 << 18);
  SegmentBuilder large(directory_.path(), {.layout = kFull, .nonce = 1, .job = "j", .dead = true});
  FillWithLongNames(large, kFull);
  SegmentBuilder small(directory_.path(), {.nonce = 2, .job = "j", .dead = true});
  small.WriteValue("aten::log", "a");
  Observations observations(places_);
  RemoveReadSegments(observations, "j");
  EXPECT_TRUE(std::filesystem::exists(large.path()));
  EXPECT_FALSE(std::filesystem::exists(small.path()));
}

}  // namespace
}  // namespace nanwatch
