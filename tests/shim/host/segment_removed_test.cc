// SPDX-License-Identifier: Apache-2.0
// A segment's file is removed under a running job: a logout does that, and administrators who tidy
// up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include "proto/wire/name_table.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

// Reads a word of the file, not of the mapping.
uint64_t WordOfFile(const char* path, uint64_t offset) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  uint64_t word = 0;
  EXPECT_EQ(pread(fd, &word, sizeof word, static_cast<off_t>(offset)), 8) << path;
  close(fd);
  return word;
}

class RemovedSegment : public testing::Test {
 protected:
  RemovedSegment() {
    EXPECT_NE(segment_, nullptr);
    segment_->live().tickets = 41;
    segment_->live().ops_seen = 1000;
  }
  uint64_t TicketsOfFile() {
    const auto* base = reinterpret_cast<unsigned char*>(&segment_->header());
    return WordOfFile(
        segment_->path(),
        static_cast<uint64_t>(reinterpret_cast<unsigned char*>(&segment_->live().tickets) - base));
  }
  void ExpectMadeAnew() {
    EXPECT_FALSE(segment_->StillThere());
    const wire::LiveBlock* live = &segment_->live();
    const uint64_t nonce = segment_->header().nonce;
    const SegmentReport report = segment_->Remake();
    ASSERT_TRUE(report.ok) << report.message;
    EXPECT_EQ(LockHolder(segment_->path()), getpid());
    EXPECT_TRUE(segment_->StillThere());
    EXPECT_EQ(&segment_->live(), live);
    EXPECT_EQ(segment_->header().nonce, nonce);
    EXPECT_EQ(segment_->live().ops_seen.load(), 1000u);
    EXPECT_EQ(place_.Files().size(), 1u);
    EXPECT_EQ(TicketsOfFile(), 41u);
    segment_->live().tickets = 42;  // what is written from now on is in the new file
    EXPECT_EQ(TicketsOfFile(), 42u);
    EXPECT_NE(fcntl(DescriptorOf(segment_->path()), F_GETFD) & FD_CLOEXEC, 0);
  }
  SegmentPlace place_;
  Segment* segment_ = place_.Create();
};

TEST_F(RemovedSegment, IsThereUntilItIsRemoved) {
  EXPECT_TRUE(segment_->StillThere());
  unlink(segment_->path());
  EXPECT_FALSE(segment_->StillThere());
}

TEST_F(RemovedSegment, IsMadeAnewWithItsContentAtTheSameAddress) {
  unlink(segment_->path());
  ExpectMadeAnew();
}

TEST_F(RemovedSegment, IsMadeAnewTogetherWithItsDirectory) {
  std::filesystem::remove_all(place_.directory());
  ExpectMadeAnew();
}

TEST_F(RemovedSegment, IsMadeAnewAgainAndAgain) {
  for (int i = 0; i < 3; ++i) {
    segment_->live().tickets = 41;
    unlink(segment_->path());
    ExpectMadeAnew();
  }
}

TEST_F(RemovedSegment, StaysUsableInMemoryWhenItCannotBeMadeAnew) {
  std::filesystem::remove_all(place_.directory());
  std::filesystem::create_symlink("elsewhere", place_.directory());
  const SegmentReport report = segment_->Remake();
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.message, testing::HasSubstr("symbolic link"));
  EXPECT_EQ(segment_->live().ops_seen.load(), 1000u);
  segment_->live().ops_seen = 1001;
  unlink(place_.directory().c_str());
  EXPECT_TRUE(segment_->Remake().ok);
  EXPECT_EQ(segment_->live().ops_seen.load(), 1001u);
}

TEST_F(RemovedSegment, SaysSoWhenThereIsNoRoomAnyMoreAndLeavesNothingBehind) {
  const std::string said = InChild([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", place_.directory().c_str(), "tmpfs", 0, "mode=0700,size=8k") != 0) {
      return "skip";
    }
    const SegmentReport report = segment_->Remake();
    segment_->live().ops_seen = 1;  // still mapped
    return (place_.Files().empty() ? "" : "left something behind; ") + std::string(report.message);
  });
  if (said == "skip") GTEST_SKIP() << "NOT TESTED: mounting a tmpfs needs root";
  EXPECT_THAT(said, testing::StartsWith(place_.directory() + " has 8 KiB free"));
}

}  // namespace
}  // namespace nanwatch
