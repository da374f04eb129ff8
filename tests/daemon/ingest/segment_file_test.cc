// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/segment_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "tests/fakes/segment_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

class SegmentFileTest : public testing::Test {
 protected:
  // Why the file is refused once `spoil` has been at its header.
  std::string RefusalAfter(const std::function<void(wire::SegmentHeader&)>& spoil) {
    SegmentBuilder job(directory_.path(), {});
    spoil(job.header());
    const Result<SegmentFile> file = SegmentFile::Open(job.path(), false);
    return file.ok() ? "accepted" : file.status().message();
  }

  TemporaryDirectory directory_;
};

TEST_F(SegmentFileTest, OpensWhatAJobMade) {
  EXPECT_EQ(RefusalAfter([](wire::SegmentHeader&) {}), "accepted");
}

TEST_F(SegmentFileTest, SkipsSectionsOfTypesThatItDoesNotKnow) {
  EXPECT_EQ(RefusalAfter([](wire::SegmentHeader& h) {
              h.sections[h.section_count++] = {77, 0, 64, 64};
            }),
            "accepted");
}

TEST_F(SegmentFileTest, RefusesASectionThatLeavesTheFile) {
  EXPECT_THAT(RefusalAfter([](wire::SegmentHeader& h) { h.sections[2].size = h.file_bytes; }),
              HasSubstr("outside"));
  EXPECT_THAT(RefusalAfter([](wire::SegmentHeader& h) { h.sections[2].offset = ~uint64_t{63}; }),
              HasSubstr("outside"));
  EXPECT_THAT(RefusalAfter([](wire::SegmentHeader& h) { h.sections[2].size = ~uint64_t{0}; }),
              HasSubstr("outside"));
}

TEST_F(SegmentFileTest, RefusesASectionThatIsNotAligned) {
  EXPECT_THAT(RefusalAfter([](wire::SegmentHeader& h) { h.sections[2].offset += 8; }),
              HasSubstr("outside"));
}

TEST_F(SegmentFileTest, RefusesMoreSectionsThanADirectoryHas) {
  EXPECT_THAT(RefusalAfter([](wire::SegmentHeader& h) { h.section_count = 25; }),
              HasSubstr("claims 25 sections"));
}

TEST_F(SegmentFileTest, RefusesAFileThatIsShorterThanItSays) {
  EXPECT_THAT(RefusalAfter([](wire::SegmentHeader& h) { h.file_bytes += 1; }),
              HasSubstr("cut short"));
}

TEST_F(SegmentFileTest, RefusesAFileWithoutALiveBlock) {
  EXPECT_THAT(RefusalAfter([](wire::SegmentHeader& h) { h.section_count = 0; }),
              HasSubstr("no live block"));
}

TEST_F(SegmentFileTest, NamesTheVersionThatItCannotRead) {
  SegmentBuilder job(directory_.path(), {.wire_major = 2});
  const Result<SegmentFile> file = SegmentFile::Open(job.path(), false);
  EXPECT_EQ(file.status().kind(), ErrorKind::kUnsupported);
  EXPECT_THAT(file.status().message(),
              HasSubstr("written in wire format 2." + std::to_string(wire::kWireMinor)));
}

TEST_F(SegmentFileTest, RefusesSymbolicLinksAndFifos) {
  SegmentBuilder job(directory_.path(), {});
  ASSERT_EQ(symlink(job.path().c_str(), (directory_ / "link.seg").c_str()), 0);
  EXPECT_FALSE(SegmentFile::Open(directory_ / "link.seg", false).ok());
  ASSERT_EQ(mkfifo((directory_ / "fifo.seg").c_str(), 0600), 0);
  EXPECT_FALSE(SegmentFile::Open(directory_ / "fifo.seg", false).ok());
}

}  // namespace
}  // namespace nanwatch
