// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/segment_directory_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "daemon/base/directories.h"
#include "tests/fakes/segment_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using Change = SegmentDirectoryWatch::Change;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(SegmentDirectoryWatchTest, TellsSegmentsExitsAndLeftoversFromTheRest) {
  TemporaryDirectory directory;
  const std::string exit = "j" + ExitSuffix();
  for (const std::string& name :
       {std::string("nw-1-a.seg"), std::string("nw-2-b.tmp"), exit, exit + ".7.tmp",
        std::string("j.exit-0badf00d"), std::string("daemon.lock"), std::string("notes.txt")}) {
    std::ofstream(directory / name) << "x";
  }
  const Result<SegmentListing> listing = ListSegments(directory.path());
  ASSERT_TRUE(listing.ok());
  EXPECT_THAT(listing->segments, ElementsAre("nw-1-a.seg"));
  EXPECT_THAT(listing->unfinished, ElementsAre("nw-2-b.tmp"));
  EXPECT_THAT(listing->exits, ElementsAre(exit));
}

TEST(SegmentDirectoryWatchTest, SaysSoWhenASegmentGetsItsName) {
  TemporaryDirectory directory;
  Result<SegmentDirectoryWatch> watch = SegmentDirectoryWatch::Open(directory.path());
  ASSERT_TRUE(watch.ok());
  EXPECT_EQ(watch->TakeChange(), Change::kNone);
  SegmentBuilder job(directory.path(), {});
  EXPECT_EQ(watch->TakeChange(), Change::kContents);
  EXPECT_EQ(watch->TakeChange(), Change::kNone);
}

TEST(SegmentDirectoryWatchTest, SaysSoWhenTheDirectoryItselfIsRemoved) {
  TemporaryDirectory directory;
  const std::string inner = directory / "inner";
  std::filesystem::create_directory(inner);
  Result<SegmentDirectoryWatch> watch = SegmentDirectoryWatch::Open(inner);
  ASSERT_TRUE(watch.ok());
  std::filesystem::remove(inner);
  EXPECT_EQ(watch->TakeChange(), Change::kDirectoryGone);
}

TEST(SegmentDirectoryWatchTest, NamesFilesThatAreNoSegmentsAndWhy) {
  TemporaryDirectory directory;
  std::ofstream(directory / "a.seg") << "garbage that is long enough to have a magic number";
  SegmentBuilder newer(directory.path(), {.nonce = 1, .wire_major = 9});
  SegmentBuilder good(directory.path(), {.nonce = 2});
  const std::vector<UnreadableFile> unreadable = ListUnreadable(directory.path());
  ASSERT_EQ(unreadable.size(), 2u);
  EXPECT_EQ(unreadable[0].name, "a.seg");
  EXPECT_THAT(unreadable[0].reason, HasSubstr("does not start like a segment"));
  EXPECT_EQ(unreadable[1].name, newer.name());
  EXPECT_THAT(unreadable[1].reason, HasSubstr("wire format 9." + std::to_string(wire::kWireMinor)));
}

}  // namespace
}  // namespace nanwatch
