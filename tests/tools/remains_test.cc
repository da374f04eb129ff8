// SPDX-License-Identifier: Apache-2.0
#include "tools/remains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/wire/naming.h"
#include "tests/fakes/segment_builder.h"
#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

Places PlacesIn(const std::string& directory) {
  Places places;
  places.segment_dir = directory + "/segments";
  places.state_dir = directory + "/state";
  return places;
}

class RemainsTest : public testing::Test {
 protected:
  RemainsTest() {
    fs::create_directories(places_.segment_dir);
    fs::create_directories(places_.state_dir);
  }
  // A file whose last change was so long ago.
  std::string Leave(const std::string& path, int hours) {
    std::ofstream(path) << "left";
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
    return path;
  }
  static void MakeOld(const std::string& path) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  std::vector<std::string> Found(const std::vector<FileIdentity>& unread = {}) {
    std::vector<std::string> paths;
    for (const Remain& remain : FindRemains(places_, clock_, unread)) paths.push_back(remain.path);
    return paths;
  }
  std::string InSegments(const std::string& name) { return places_.segment_dir + "/" + name; }
  std::string InState(const std::string& name) { return places_.state_dir + "/" + name; }

  TemporaryDirectory directory_;
  Places places_ = PlacesIn(directory_.path());
  SystemClock clock_;
};

TEST_F(RemainsTest, AreWhatNoLivingProcessHas) {
  const std::string prefix = wire::kSegmentPrefix;
  IdleProcess gone;
  const std::string pid = std::to_string(gone.pid());
  gone.Kill();
  const std::string no_segment = Leave(InSegments(prefix + pid + "-1.seg"), 2);
  const std::string unfinished = Leave(InSegments(prefix + pid + "-2.tmp"), 2);
  const std::string attach = Leave(InSegments("attach-17"), 2);
  const std::string aside = Leave(InState("nanwatch.db.corrupt-2026-01-01T00:00:00.000Z"), 0);
  const std::string probe = Leave(InState(".write-test-17"), 2);
  // These stay: fresh ones, those of a living process, and what is nobody's of ours.
  Leave(InSegments(prefix + pid + "-3.tmp"), 0);
  Leave(InSegments(prefix + std::to_string(getpid()) + "-4.tmp"), 2);
  Leave(InSegments("attach-18"), 0);
  Leave(InSegments("daemon.lock"), 2);
  Leave(InState("nanwatch.db"), 2);
  Leave(InState("events.jsonl"), 2);
  EXPECT_THAT(Found(), UnorderedElementsAre(no_segment, unfinished, attach, aside, probe));
  for (const Remain& remain : FindRemains(places_, clock_)) EXPECT_EQ(RemoveRemain(remain), "");
  EXPECT_THAT(Found(), IsEmpty());
  EXPECT_TRUE(fs::exists(InState("nanwatch.db")));
}

TEST_F(RemainsTest, SegmentsThatADaemonReadsAreItsOwn) {
  const SegmentBuilder dead(places_.segment_dir, {.nonce = 1, .dead = true});
  const SegmentBuilder alive(places_.segment_dir, {.nonce = 2});
  for (const std::string& path : {dead.path(), alive.path()}) MakeOld(path);
  EXPECT_EQ(CountUnreadSegments(places_, clock_), 1);
  EXPECT_THAT(Found(), IsEmpty());
  EXPECT_THAT(Found(FindUnreadSegments(places_, clock_)), ElementsAre(dead.path()));
}

// No daemon had the time to read it.
TEST_F(RemainsTest, OfSegmentsThatNobodyHasReadTheFreshOnesStay) {
  const SegmentBuilder dead(places_.segment_dir, {.nonce = 1, .dead = true});
  EXPECT_THAT(FindUnreadSegments(places_, clock_), IsEmpty()) << "it is a moment old";
  MakeOld(dead.path());
  const std::vector<FileIdentity> unread = FindUnreadSegments(places_, clock_);
  const SegmentBuilder later(places_.segment_dir, {.nonce = 2, .dead = true});
  MakeOld(later.path());
  EXPECT_THAT(Found(unread), ElementsAre(dead.path())) << "the other came after the list";
  SegmentBuilder spoke(places_.segment_dir, {.nonce = 3, .dead = true});
  spoke.Publish();
  MakeOld(spoke.path());
  EXPECT_EQ(FindUnreadSegments(places_, clock_).size(), 2u) << "its last word is a moment old";
  EXPECT_EQ(CountUnreadSegments(places_, clock_), 3);
}

TEST_F(RemainsTest, ASegmentOfAnotherVersionIsOneOnceItsProcessHasEnded) {
  IdleProcess process;
  const SegmentBuilder newer(places_.segment_dir,
                             {.nonce = 1, .pid = process.pid(), .wire_major = 99});
  fs::last_write_time(newer.path(), fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_THAT(Found(), IsEmpty());
  process.Kill();
  EXPECT_THAT(Found(), ElementsAre(newer.path()));
  EXPECT_THAT(FindRemains(places_, clock_).at(0).what, HasSubstr("wire format 99"));
}

// Between the list and the removal the name may be given to another file.
TEST_F(RemainsTest, OnlyTheFileThatWasListedIsRemoved) {
  const std::string name = std::string(wire::kSegmentPrefix) + "999999999-2.tmp";
  const std::string path = Leave(InSegments(name), 2);
  const std::vector<Remain> remains = FindRemains(places_, clock_);
  ASSERT_EQ(remains.size(), 1u);
  const std::string another = Leave(InSegments("another"), 0);
  fs::rename(another, path);
  EXPECT_THAT(RemoveRemain(remains[0]), HasSubstr("another file"));
  EXPECT_TRUE(fs::exists(path));
  fs::remove(path);
  EXPECT_EQ(RemoveRemain(remains[0]), "") << "somebody else has removed it";
}

TEST_F(RemainsTest, NothingIsFoundWhereThereAreNoDirectories) {
  places_ = PlacesIn(directory_.path() + "/none");
  EXPECT_THAT(Found(), IsEmpty());
}

}  // namespace
}  // namespace nanwatch
