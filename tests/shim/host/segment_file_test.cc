// SPDX-License-Identifier: Apache-2.0
#include "shim/host/segment_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "proto/wire/ring.h"
#include "shim/host/ignore_text.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

TEST(SegmentFile, LiesUnderItsFinalNameForItsOwnerAloneAndInItsFullLength) {
  SegmentPlace place;
  const mode_t before = umask(0);
  Segment* segment = place.Create(kSegmentLayout);
  umask(before);
  ASSERT_NE(segment, nullptr) << place.report().message;
  char name[64];
  std::snprintf(name, sizeof name, "nw-%d-%016llx.seg", getpid(),
                static_cast<unsigned long long>(segment->header().nonce));
  EXPECT_EQ(place.Files(), std::vector<std::string>{name});
  EXPECT_EQ(segment->path(), place.directory() + "/" + name);

  struct stat file {};
  struct stat directory {};
  ASSERT_EQ(stat(segment->path(), &file), 0);
  ASSERT_EQ(stat(place.directory().c_str(), &directory), 0);
  EXPECT_EQ(file.st_mode & 07777, 0600u);
  EXPECT_EQ(directory.st_mode & 07777, 0700u);
  EXPECT_EQ(static_cast<uint64_t>(file.st_size), segment->header().file_bytes);
  EXPECT_LT(file.st_size, 8 << 20);
}

TEST(SegmentFile, DirectoryOfSectionsIsAlignedInOrderAndInsideTheFile) {
  SegmentPlace place;
  Segment* segment = place.Create(kSegmentLayout);
  ASSERT_NE(segment, nullptr);
  const wire::SegmentHeader& header = segment->header();
  EXPECT_EQ(header.magic, wire::kSegmentMagic);
  EXPECT_EQ(std::memcmp(&header.magic, "NANWATCH", 8), 0);
  EXPECT_EQ(header.wire_major, wire::kWireMajor);
  EXPECT_EQ(header.header_bytes, sizeof header);
  ASSERT_EQ(header.section_count, 11u) << "the user gave no rules";
  uint64_t end = sizeof header;
  for (uint32_t i = 0; i < header.section_count; ++i) {
    const wire::SectionEntry& section = header.sections[i];
    const auto expected = i == 8    ? wire::SectionType::kTelemetry
                          : i == 9  ? wire::SectionType::kTrail
                          : i == 10 ? wire::SectionType::kStats
                                    : static_cast<wire::SectionType>(i + 1);
    EXPECT_EQ(section.type, static_cast<uint32_t>(expected));
    EXPECT_EQ(section.offset % 64, 0u);
    EXPECT_GE(section.offset, end);
    end = section.offset + section.size;
  }
  EXPECT_LE(end, header.file_bytes);
}

TEST(SegmentFile, CarriesTheRulesThatTheUserGave) {
  SegmentPlace place;
  setenv(wire::kEnvIgnore, "op=aten::log", 1);
  Segment* segment = place.Create(kSegmentLayout);
  unsetenv(wire::kEnvIgnore);
  ASSERT_NE(segment, nullptr);
  const wire::SegmentHeader& header = segment->header();
  ASSERT_EQ(header.section_count, 12u);
  EXPECT_EQ(header.sections[11].type, static_cast<uint32_t>(wire::SectionType::kBlobs));
  const auto* section = reinterpret_cast<const wire::IgnoreSection*>(
      reinterpret_cast<const unsigned char*>(&header) + header.sections[11].offset);
  EXPECT_EQ(std::string(section->text, section->bytes), "op=aten::log");
}

TEST(SegmentFile, ReadersFindEverySectionBeforeAnythingIsWritten) {
  SegmentPlace place;
  Segment* segment = place.Create();
  ASSERT_NE(segment, nullptr);
  const wire::SegmentHeader& header = segment->header();
  const auto size = [&](wire::SectionType type) {
    return header.sections[static_cast<uint32_t>(type) - 1].size;
  };
  EXPECT_TRUE(wire::RingReader::Open(segment->ring(), size(wire::SectionType::kFindings)));
  EXPECT_TRUE(wire::StepReader::Open(segment->steps(), size(wire::SectionType::kSteps)));
  EXPECT_TRUE(wire::StatsReader::Open(segment->stats(), header.sections[9].size));
  EXPECT_TRUE(wire::SiteReader::Open(segment->sites(), size(wire::SectionType::kSites)));
  EXPECT_TRUE(wire::NameReader::Open(segment->names(), size(wire::SectionType::kNames)));
}

TEST(SegmentFile, IsNotInheritedByProgramsThatTheJobStarts) {
  SegmentPlace place;
  Segment* segment = place.Create();
  ASSERT_NE(segment, nullptr);
  const int fd = DescriptorOf(segment->path());
  ASSERT_GE(fd, 0);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_GE(fd, 200) << "low numbers belong to the program";
  EXPECT_EQ(DescriptorOf(place.directory()), -1) << "the directory was left open";
}

TEST(SegmentFile, TakesTextsThatAreLongerThanTheirFields) {
  SegmentPlace place;
  const std::string directory = place.directory();
  const std::string version(500, 'v');
  SegmentReport report;
  Segment* segment = Segment::Create({.level = wire::Level::kFull,
                                      .torch_version = version.c_str(),
                                      .python_version = "3.11.2",
                                      .forked_from = 77,
                                      .directory = directory.c_str(),
                                      .layout = kTinyLayout},
                                     report);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(segment->header().torch_version, std::string(31, 'v'));
  EXPECT_STREQ(segment->header().python_version, "3.11.2");
  EXPECT_EQ(segment->header().forked_from, 77);
  EXPECT_EQ(segment->header().level, static_cast<uint8_t>(wire::Level::kFull));
}

TEST(SegmentFile, AForkedChildMakesOneOfItsOwn) {
  SegmentPlace place;
  Segment* segment = place.Create();
  ASSERT_NE(segment, nullptr);
  segment->live().ops_seen = 5;
  const std::string child = InChild([&]() -> std::string {
    Segment* own = place.Create();
    if (own == nullptr) return place.report().message;
    if (own->header().pid != getpid() || own->header().nonce == segment->header().nonce)
      return "same";
    own->live().ops_seen = 9;
    return own->path();
  });
  EXPECT_TRUE(std::filesystem::exists(child)) << child;
  EXPECT_EQ(segment->live().ops_seen.load(), 5u);
  EXPECT_EQ(place.Files().size(), 2u);
}

// ---- no room

TEST(SegmentFileWithoutRoom, RespectsTheLimitOnFileSizesInsteadOfBeingKilledByIt) {
  SegmentPlace place;
  const std::string said = InChild([&]() -> std::string {
    const rlimit limit{.rlim_cur = 512 << 10, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit";
    return place.Create(kSegmentLayout) == nullptr ? place.report().message : "made";
  });
  EXPECT_THAT(said, HasSubstr("ulimit -f"));
  EXPECT_TRUE(place.Files().empty());
}

TEST(SegmentFileWithoutRoom, IsAQuarterTheLengthWhereFilesMayNotBeAsLongAsTheWhole) {
  SegmentPlace place;
  const std::string said = InChild([&]() -> std::string {
    const rlimit limit{.rlim_cur = 4 << 20, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit";
    Segment* segment = place.Create(kSegmentLayout);
    return segment == nullptr ? place.report().message
                              : std::to_string(segment->header().file_bytes);
  });
  EXPECT_EQ(said, std::to_string(MapSegment(Quarter(kSegmentLayout)).file_bytes));
}

}  // namespace
}  // namespace nanwatch
