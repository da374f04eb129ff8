// SPDX-License-Identifier: Apache-2.0
// A segment takes pages as it is written, never more than it may, and none of them is ever a hole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <fstream>
#include <vector>

#include "proto/wire/first_findings.h"
#include "proto/wire/name_table.h"
#include "proto/wire/ring.h"
#include "proto/wire/site_table.h"
#include "proto/wire/stats_ring.h"
#include "shim/host/file_room.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

uint64_t PagesOf(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

// Every writer over the segment's rooms, as Emitter has them.
struct Writers {
  explicit Writers(Segment& segment)
      : ring(segment.ring(), segment.slots(), segment.layout().ring_slots,
             segment.room(Room::kRing)),
        names(segment.names(), segment.layout().names, segment.layout().name_bytes,
              segment.room(Room::kNames), segment.room(Room::kNameText)),
        sites(segment.sites(), segment.layout().sites, segment.room(Room::kSites)),
        steps(segment.steps(), segment.layout().steps, segment.room(Room::kSteps)),
        telemetry(segment.telemetry(), segment.layout().steps, segment.room(Room::kTelemetry)),
        trails(segment.trails(), wire::kTrails, segment.room(Room::kTrails)),
        stats(segment.stats(), segment.layout().stats, segment.room(Room::kStats)) {}

  bool Write() {
    wire::KillRecord record{};
    record.header.kind = static_cast<uint16_t>(wire::RecordKind::kKill);
    record.header.bytes = sizeof record;
    return ring.Write(&record, sizeof record);
  }

  wire::RingWriter ring;
  wire::NameWriter names;
  wire::SiteWriter sites;
  wire::StepWriter steps;
  wire::TelemetryWriter telemetry;
  wire::TrailWriter trails;
  wire::StatsWriter stats;
};

TEST(SegmentGrowth, ANewSegmentHasPagesForItsBeginningsOnly) {
  SegmentPlace place;
  Segment* segment = place.Create(kSegmentLayout);
  ASSERT_NE(segment, nullptr) << place.report().message;
  EXPECT_LT(PagesOf(segment->path()), 320u << 10);
  RecordProperty("bytes", static_cast<int>(PagesOf(segment->path())));
}

TEST(SegmentGrowth, AHealthyJobThatRunsOnAndOnStaysBelowOneMebibyte) {
  SegmentPlace place;
  Segment* segment = place.Create(kSegmentLayout);
  ASSERT_NE(segment, nullptr);
  Writers writers(*segment);
  const std::vector<wire::StatsParameter> parameters(148);
  for (int i = 0; i < 600; ++i) {
    ASSERT_NE(writers.names.Intern("transformer.h." + std::to_string(i) + ".attn.c_proj.weight"),
              0u);
  }
  for (int step = 0; step < 100'000; ++step) {
    writers.telemetry.Publish({});
    writers.steps.Publish({});
    if (step % 100 == 0) writers.stats.Publish({}, parameters, {}, 1);
  }
  EXPECT_LT(PagesOf(segment->path()), 1u << 20);
  RecordProperty("bytes", static_cast<int>(PagesOf(segment->path())));
}

TEST(SegmentGrowth, EverySectionGrowsToItsFullLengthWhereThereIsRoom) {
  SegmentPlace place;
  Segment* segment = place.Create(kSegmentLayout);
  ASSERT_NE(segment, nullptr);
  Writers writers(*segment);
  uint64_t written = 0;
  while (writers.Write()) ++written;
  EXPECT_EQ(written, segment->layout().ring_slots / wire::SlotsFor(sizeof(wire::KillRecord)));
  bool is_new = false;
  for (uint32_t i = 1; i <= segment->layout().sites; ++i) {
    ASSERT_EQ(writers.sites.Intern(
                  {.op = i}, [] { return 0u; }, &is_new),
              i);
  }
  for (uint32_t i = 1; i <= segment->layout().names; ++i) {
    ASSERT_EQ(writers.names.Intern(std::to_string(i)), i);
  }
  const auto trail = std::make_unique<wire::TrailEntry>();
  for (int i = 0; i < wire::kTrails; ++i) writers.trails.Publish(*trail);
  EXPECT_EQ(segment->trails()->written.load(), uint64_t{wire::kTrails});
}

TEST(SegmentGrowth, AReaderMakesNoPagesByReading) {
  SegmentPlace place;
  Segment* segment = place.Create(kSegmentLayout);
  ASSERT_NE(segment, nullptr);
  Writers writers(*segment);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(writers.Write());
  for (int i = 0; i < 300; ++i) writers.steps.Publish({});
  writers.stats.Publish({}, std::vector<wire::StatsParameter>(5), {}, 1);
  const uint64_t before = PagesOf(segment->path());
  const wire::SegmentHeader& header = segment->header();
  const auto size = [&](wire::SectionType type) -> size_t {
    for (uint32_t i = 0; i < header.section_count; ++i) {
      if (header.sections[i].type == static_cast<uint32_t>(type)) return header.sections[i].size;
    }
    return 0;
  };
  auto ring = *wire::RingReader::Open(segment->ring(), size(wire::SectionType::kFindings));
  wire::RecordCopy copy;
  int records = 0;
  while (ring.Read(copy, wire::Holes::kSkip) == wire::RingRead::kRecord) ++records;
  EXPECT_EQ(records, 100);
  auto steps = *wire::StepReader::Open(segment->steps(), size(wire::SectionType::kSteps));
  wire::StepEntry step;
  int read = 0;
  while (steps.Read(step)) ++read;
  EXPECT_EQ(read, 300);
  auto stats = *wire::StatsReader::Open(segment->stats(), size(wire::SectionType::kStats));
  wire::StatsCopy snapshot;
  EXPECT_TRUE(stats.Read(snapshot));
  EXPECT_FALSE(stats.Read(snapshot));
  for (int i = 0; i < wire::kFirstFindingsMax; ++i) {
    EXPECT_FALSE(wire::ReadFirstFinding(segment->first()[i], copy));
  }
  EXPECT_EQ(PagesOf(segment->path()), before);
}

// ---- little room

// What `body` says of a segment directory on a tmpfs of `kib` KiB; "skip" without root.
template <typename Body>
std::string OnTmpfs(SegmentPlace& place, int kib, Body&& body) {
  std::filesystem::create_directory(place.directory());
  return InChild([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      return "skip";
    }
    const std::string size = "mode=0700,size=" + std::to_string(kib) + "k";
    if (mount("tmpfs", place.directory().c_str(), "tmpfs", 0, size.c_str()) != 0) return "skip";
    return body();
  });
}

uint64_t FreeIn(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const uint64_t free = RoomOf(fd).free;
  close(fd);
  return free;
}

void Fill(const std::string& path, uint64_t bytes) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  EXPECT_EQ(posix_fallocate(fd, 0, static_cast<off_t>(bytes)), 0);
  close(fd);
}

#define SKIP_WITHOUT_ROOT(said) \
  if (said == "skip") GTEST_SKIP() << "NOT TESTED: mounting a tmpfs needs root"

TEST(SegmentInLittleRoom, LeavesFourTimesAsMuchAsItTakes) {
  SegmentPlace place;
  const std::string said = OnTmpfs(place, 8192, [&]() -> std::string {
    Segment* segment = place.Create(kSegmentLayout);
    if (segment == nullptr) return place.report().message;
    Writers writers(*segment);
    int written = 0;
    for (int i = 0; i < 100'000; ++i) written += writers.Write() ? 1 : 0;
    const uint64_t own = PagesOf(segment->path());
    const uint64_t free = FreeIn(place.directory());
    if (written < 300) return "wrote only " + std::to_string(written);
    if (free / 4 < own) return std::to_string(own) + " taken, " + std::to_string(free) + " left";
    return segment->ring()->records_dropped.load() == 100'000u - static_cast<unsigned>(written)
               ? "good"
               : "not counted";
  });
  SKIP_WITHOUT_ROOT(said);
  EXPECT_EQ(said, "good");
}

TEST(SegmentInLittleRoom, OfEightProcessesThatAllWantMoreLeavesRoomForOthers) {
  SegmentPlace place;
  const std::string said = OnTmpfs(place, 64 << 10, [&]() -> std::string {
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        Segment* segment = place.Create(kSegmentLayout);
        if (segment == nullptr) _exit(1);
        Writers writers(*segment);
        for (int j = 0; j < 200'000; ++j) (void)writers.Write();
        _exit(0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      if (status != 0) return "a process ended with " + std::to_string(status);
    }
    const uint64_t free = FreeIn(place.directory());
    return free >= 20u << 20 ? "good" : std::to_string(free >> 10) + " KiB left";
  });
  SKIP_WITHOUT_ROOT(said);
  EXPECT_EQ(said, "good");
}

TEST(SegmentInLittleRoom, DropsAndCountsWhenTheFileSystemFillsUpAndNoStoreEndsTheProcess) {
  SegmentPlace place;
  const std::string said = OnTmpfs(place, 16 << 10, [&]() -> std::string {
    Segment* segment = place.Create(kSegmentLayout);
    if (segment == nullptr) return place.report().message;
    Writers writers(*segment);
    Fill(place.directory() + "/filler", FreeIn(place.directory()));
    uint64_t written = 0;
    for (int i = 0; i < 5000; ++i) written += writers.Write() ? 1 : 0;
    bool is_new = false;
    uint32_t sites = 0;
    for (uint32_t i = 1; i < 3000; ++i) {
      sites += writers.sites.Intern(
                   {.op = i}, [] { return 0u; }, &is_new) != 0
                   ? 1
                   : 0;
    }
    uint32_t names = 0;
    for (uint32_t i = 1; i < 10'000; ++i) {
      names += writers.names.Intern("a name of some length " + std::to_string(i)) != 0 ? 1 : 0;
    }
    for (int i = 0; i < 5000; ++i) {
      writers.telemetry.Publish({});
      writers.steps.Publish({});
    }
    const auto trail = std::make_unique<wire::TrailEntry>();
    for (int i = 0; i < 20; ++i) writers.trails.Publish(*trail);
    writers.stats.Publish({}, std::vector<wire::StatsParameter>(100), {}, 1);
    auto steps = *wire::StepReader::Open(
        segment->steps(), wire::StepRingBytes<wire::StepEntry>(segment->layout().steps));
    wire::StepEntry step;
    uint64_t read = 0;
    while (steps.Read(step)) ++read;
    if (FreeIn(place.directory()) != 0) return "it was not full";
    if (written < 60 || written == 5000) return std::to_string(written) + " records";
    if (sites < 64 || sites == 2999) return std::to_string(sites) + " places";
    if (names < 200 || names == 9999) return std::to_string(names) + " names";
    if (read < 30 || read + steps.lost() != 5000) {
      return std::to_string(read) + " steps read, " + std::to_string(steps.lost()) + " lost";
    }
    return "good";
  });
  SKIP_WITHOUT_ROOT(said);
  EXPECT_EQ(said, "good");
}

TEST(SegmentInLittleRoom, KeepsAllFirstFindingsInAFullFileSystem) {
  SegmentPlace place;
  const std::string said = OnTmpfs(place, 16 << 10, [&]() -> std::string {
    Segment* segment = place.Create(kSegmentLayout);
    if (segment == nullptr) return place.report().message;
    Fill(place.directory() + "/filler", FreeIn(place.directory()));
    wire::FirstWriter first(segment->first(), segment->reach());
    std::vector<unsigned char> record(wire::kRecordBytesMax);
    auto* header = reinterpret_cast<wire::RecordHeader*>(record.data());
    header->kind = static_cast<uint16_t>(wire::RecordKind::kValue);
    header->bytes = static_cast<uint16_t>(record.size());
    int kept = 0;
    while (first.Keep(*header)) ++kept;
    wire::RecordCopy copy;
    for (int i = 0; i < kept; ++i) {
      if (!wire::ReadFirstFinding(segment->first()[i], copy)) return "not readable";
    }
    return std::to_string(kept);
  });
  SKIP_WITHOUT_ROOT(said);
  EXPECT_EQ(said, std::to_string(wire::kFirstFindingsMax));
}

// A reader that releases lets the smaller ring go round for ever.
TEST(SegmentInLittleRoom, AReadRingThatCannotGrowGoesOnAsASmallerOne) {
  SegmentPlace place;
  const std::string said = OnTmpfs(place, 16 << 10, [&]() -> std::string {
    Segment* segment = place.Create(kSegmentLayout);
    if (segment == nullptr) return place.report().message;
    Writers writers(*segment);
    Fill(place.directory() + "/filler", FreeIn(place.directory()));
    const size_t bytes =
        sizeof(wire::RingHeader) + segment->layout().ring_slots * sizeof(wire::Slot);
    uint64_t cursor = 0;
    int records = 0;
    for (int round = 0; round < 200; ++round) {
      for (int i = 0; i < 50; ++i) {
        if (!writers.Write()) return "dropped in round " + std::to_string(round);
      }
      auto ring = *wire::RingReader::Open(segment->ring(), bytes, cursor);
      wire::RecordCopy copy;
      while (ring.Read(copy, wire::Holes::kWait) == wire::RingRead::kRecord) ++records;
      cursor = ring.cursor();
      wire::ReleaseSlots(*segment->ring(), cursor);
    }
    return std::to_string(records);
  });
  SKIP_WITHOUT_ROOT(said);
  EXPECT_EQ(said, "10000");
}

TEST(SegmentInLittleRoom, IsNotMadeWhereItsBeginningIsMoreThanAQuarter) {
  SegmentPlace place;
  const std::string said = OnTmpfs(place, 512, [&]() -> std::string {
    setenv(wire::kEnvRun, "1", 1);
    setenv(wire::kEnvJob, "some.job", 1);
    Segment* segment = place.Create(kSegmentLayout);
    if (segment != nullptr) return "made";
    const std::vector<std::string> files = place.Files();
    const std::string mark = "some.job." + std::to_string(getpid()) + wire::kUnwatchedSuffix;
    if (files != std::vector<std::string>{mark}) return "no mark";
    return place.report().message;
  });
  SKIP_WITHOUT_ROOT(said);
  EXPECT_THAT(said, testing::HasSubstr("has 512 KiB free"));
  EXPECT_THAT(said, testing::HasSubstr("not watched"));
}

}  // namespace
}  // namespace nanwatch
