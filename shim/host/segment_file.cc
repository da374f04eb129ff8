// SPDX-License-Identifier: Apache-2.0
#include "shim/host/segment_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "shim/host/bus_guard.h"
#include "shim/host/file_room.h"
#include "shim/host/file_status.h"
#include "shim/host/ignore_text.h"
#include "shim/host/locked_file.h"
#include "shim/host/mapped_file.h"
#include "shim/host/monotonic_clock.h"
#include "shim/host/process_identity.h"
#include "shim/host/segment_directory.h"
#include "shim/host/segment_names.h"
#include "shim/host/segment_rooms.h"
#include "shim/host/segment_sweep.h"
#include "shim/host/unwatched_mark.h"

namespace nanwatch {
namespace {

constexpr unsigned long long Kib(uint64_t bytes) { return (bytes + 1023) / 1024; }

void ExplainFailure(const char* path, int directory, int error, const SegmentMap& map,
                    uint64_t least, SegmentReport& report) noexcept {
  char buffer[128];
  if (error == ENOSPC || error == EDQUOT) {
    report.Fail(
        "%s has %llu KiB free, and a segment starts with %llu KiB and takes a quarter at most: "
        "this process is not watched; free some space, enlarge the file system (in Docker: "
        "--shm-size), or set NANWATCH_DIR to a larger tmpfs",
        path, Kib(RoomOf(directory).free), Kib(least));
  } else if (error == EFBIG) {
    report.Fail(
        "a segment is %llu KiB long, and this process may not create files that large; raise the "
        "limit (ulimit -f)",
        Kib(map.file_bytes));
  } else {
    report.Fail("cannot create a segment in %s: %s", path, ErrorText(error, buffer, sizeof buffer));
  }
}

void FillHeader(wire::SegmentHeader& header, const SegmentMap& map, const SegmentOptions& options,
                uint64_t nonce) noexcept {
  FillIdentity(header);
  if (header.world_size <= 1 && options.world_size > 1) {
    header.rank = options.rank;
    header.world_size = options.world_size;
  }
  header.wire_major = wire::kWireMajor;
  header.wire_minor = wire::kWireMinor;
  header.header_bytes = sizeof header;
  header.file_bytes = map.file_bytes;
  header.nonce = nonce;
  header.forked_from = options.forked_from;
  header.level = static_cast<uint8_t>(options.level);
  header.late = options.late ? 1 : 0;
  header.section_count = map.section_count;
  std::memcpy(header.sections, map.sections, sizeof header.sections);
  std::snprintf(header.torch_version, sizeof header.torch_version, "%s", options.torch_version);
  std::snprintf(header.python_version, sizeof header.python_version, "%s", options.python_version);
  header.magic = wire::kSegmentMagic;
}

int32_t AwaitedBy() noexcept {
  const char* run = secure_getenv(wire::kEnvRun);
  return run == nullptr ? 0 : static_cast<int32_t>(std::strtol(run, nullptr, 10));
}

// For `nanwatch run`, which would else take the process for one without torch.
void MarkUnwatched(int directory) noexcept {
  if (AwaitedBy() != 0) WriteMark(directory, "no_room");
}

}  // namespace

Segment* Segment::Create(const SegmentOptions& options, SegmentReport& report) noexcept {
  report = {};
  auto* segment = new (std::nothrow) Segment();
  if (segment == nullptr) {
    report.Fail("cannot create a segment: out of memory");
    return nullptr;
  }
  const int directory = OpenSegmentDirectory(options.directory, segment->directory_, report);
  if (directory >= 0) {
    Swept swept;
    if (options.sweeps) swept = Sweep(directory, SweepLimits{});
    report.ok = segment->Make(directory, options, report);
    if (report.message[0] == '\0' && swept.unread > 0) {
      report.Remark(
          "%d segments of ended processes were removed from %s before anybody read them, "
          "the oldest of too many; a running nanwatchd would read them",
          swept.unread, segment->directory_);
    }
    close(directory);
  }
  if (report.ok) return segment;
  delete segment;
  return nullptr;
}

void Segment::PlanRooms() noexcept {
  for (int i = 0; i < kRooms; ++i) {
    const RoomPlan plan = PlanOf(static_cast<Room>(i), map_);
    rooms_[i].Set(&Segment::Grow, this, plan.offset, plan.size, plan.step, plan.doubles);
    rooms_[i].SetBacked(std::min(plan.first, plan.size));
  }
}

// Pages for all that has to have them now: what lies between the parts that grow, and of these what
// is backed. 0 or an errno.
int Segment::MakeFirstPages(int fd) const noexcept {
  uint64_t fixed_from = 0;
  int error = 0;
  const auto make = [&](uint64_t offset, uint64_t end) {
    if (error == 0 && end > offset) error = MakePages(fd, offset, end - offset);
  };
  // The parts that grow, in the order of their offsets.
  for (uint64_t at = 0; at < map_.file_bytes;) {
    const wire::SectionRoom* next = nullptr;
    for (const wire::SectionRoom& room : rooms_) {
      if (room.offset() >= at && (next == nullptr || room.offset() < next->offset())) next = &room;
    }
    if (next == nullptr) break;
    make(fixed_from, next->offset());
    make(next->offset(), next->offset() + next->backed());
    fixed_from = at = next->offset() + next->size();
  }
  make(fixed_from, map_.file_bytes);
  return error;
}

// The open and locked file under its temporary name, with its first pages, or -1 with errno;
// nothing is left behind then.
int Segment::MakeFile(int directory, const char* name) noexcept {
  if (!MayBeThatLong(map_.file_bytes)) {
    errno = EFBIG;
    return -1;
  }
  int fd = openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  fd = MoveUp(fd);
  int error = ftruncate(fd, static_cast<off_t>(map_.file_bytes)) == 0 ? 0 : errno;
  if (error == 0) error = MakeFirstPages(fd);
  if (error == 0 && !LeavesEnough(RoomOf(fd), PageBytes(fd))) error = ENOSPC;
  if (error == 0 && !Lock(fd)) error = errno;
  if (error == 0) return fd;
  unlinkat(directory, name, 0);
  close(fd);
  errno = error;
  return -1;
}

// Capacities stand in the sections' own headers; every writer sets its own again. Here, so that a
// reader who comes before the first writer finds them.
void Segment::FillSections(unsigned char* base) const noexcept {
  const SegmentLayout& layout = map_.layout;
  reinterpret_cast<wire::RingHeader*>(base + map_.ring)->capacity = layout.ring_slots;
  reinterpret_cast<wire::StepRingHeader*>(base + map_.steps)->capacity = layout.steps;
  reinterpret_cast<wire::StepRingHeader*>(base + map_.stats)->capacity = layout.stats;
  reinterpret_cast<wire::SiteTableHeader*>(base + map_.sites)->capacity = layout.sites;
  auto* names = reinterpret_cast<wire::NameTableHeader*>(base + map_.names);
  names->capacity = layout.names;
  names->bytes_capacity = layout.name_bytes;
  if (ignore_ != 0) FillIgnore(*reinterpret_cast<wire::IgnoreSection*>(base + ignore_));
}

bool Segment::Make(int directory, const SegmentOptions& options, SegmentReport& report) noexcept {
  const uint64_t nonce = Nonce();
  const FileNames names = NamesFor(getpid(), nonce);
  const SegmentLayout layouts[] = {options.layout, Quarter(options.layout)};
  for (const SegmentLayout& layout : layouts) {
    map_ = MapSegment(layout);
    ignore_ = HasIgnore() ? AppendIgnoreSection(map_) : 0;
    PlanRooms();
    fd_ = MakeFile(directory, names.tmp);
    if (fd_ >= 0 || errno != EFBIG) break;
  }
  if (fd_ < 0) {
    const int error = errno;
    uint64_t least = 0;
    for (int i = 0; i < kRooms; ++i) least += rooms_[i].backed() + kPage;
    least += wire::kFirstFindingsMax * sizeof(wire::FirstFinding);
    ExplainFailure(directory_, directory, error, map_, least, report);
    if (error == ENOSPC || error == EDQUOT) MarkUnwatched(directory);
    return false;
  }
  base_ = MapFile(fd_, map_.file_bytes);
  struct stat status {};
  if (base_ != nullptr && FileStatus(fd_, &status) == 0) {
    device_ = status.st_dev;
    inode_ = status.st_ino;
    guard_ = bus_guard::Guard(base_, map_.file_bytes);
    FillSections(base_);
    FillHeader(header_copy_, map_, options, nonce);
    header_copy_.awaited_by = AwaitedBy();
    std::memcpy(base_, &header_copy_, sizeof header_copy_);
    std::snprintf(path_, sizeof path_, "%s/%s", directory_, names.seg);
    if (renameat(directory, names.tmp, directory, names.seg) == 0) {
      if (AwaitedBy() != 0) RemoveMark(directory);
      return true;
    }
  }
  ExplainFailure(directory_, directory, errno, map_, 0, report);
  unlinkat(directory, names.tmp, 0);
  close(fd_);
  return false;
}

bool Segment::IsOurs(const struct stat& status) const noexcept {
  return status.st_dev == device_ && status.st_ino == inode_;
}

// Not the case once somebody has written over the file. A page that is missing reads as zeros.
bool Segment::HoldsOurHeader() const noexcept {
  const wire::SegmentHeader& now = header();
  return now.magic == header_copy_.magic && now.nonce == header_copy_.nonce &&
         now.file_bytes == header_copy_.file_bytes;
}

bool Segment::StillThere() noexcept {
  if (retired_.load(std::memory_order_relaxed)) return true;
  bus_guard::StayInFront();
  const std::lock_guard lock(file_mutex_);
  struct stat status {};
  if (FileStatus(fd_, &status) != 0 || !IsOurs(status)) {
    content_lost_ = content_lost_ || bus_guard::IsBroken(guard_) || !HoldsOurHeader();
    if (!Reopen() || FileStatus(fd_, &status) != 0) return false;
  }
  const bool is_whole = static_cast<uint64_t>(status.st_size) >= map_.file_bytes;
  if (!is_whole || bus_guard::IsBroken(guard_) || !HoldsOurHeader()) {
    content_lost_ = true;
    return false;
  }
  if (status.st_nlink == 0) return false;
  (void)Lock(fd_);  // again: a stranger's close of this file, by any descriptor, takes it from us
  content_lost_ = false;
  return true;
}

// ---- growth

void Segment::Grow(void* self, wire::SectionRoom& room, uint64_t wanted) {
  auto& segment = *static_cast<Segment*>(self);
  constexpr uint64_t kRetryNs = 100'000'000;
  const std::lock_guard lock(segment.file_mutex_);
  if (wanted <= room.backed() || room.frozen()) return;
  const uint64_t now = MonotonicNs();
  if (now < room.retry_at_ns.load(std::memory_order_relaxed)) return;
  const uint64_t next = room.NextSize(wanted);
  if (next >= wanted && segment.GrowBy(room, next) == 0) {
    room.SetBacked(next);
  } else {
    room.retry_at_ns.store(now + kRetryNs, std::memory_order_relaxed);
  }
}

// Makes pages for the first `next` bytes of the room. 0 or an errno.
int Segment::GrowBy(wire::SectionRoom& room, uint64_t next) noexcept {
  const uint64_t from = room.offset() + room.backed();
  const uint64_t bytes = room.offset() + next - from;
  struct stat status {};
  if (FileStatus(fd_, &status) != 0 || !IsOurs(status)) return EBADF;
  if (static_cast<uint64_t>(status.st_size) < map_.file_bytes || retired_) return EIO;
  const uint64_t own = static_cast<uint64_t>(status.st_blocks) * 512;
  FileRoom after = RoomOf(fd_);
  after.free -= std::min(after.free, bytes);
  if (!LeavesEnough(after, own + bytes)) return ENOSPC;
  if (const int error = MakePages(fd_, from, bytes); error != 0) return error;
  // Others may have grown at the same moment.
  if (LeavesEnough(RoomOf(fd_), own + bytes)) return 0;
  GivePagesBack(fd_, from, bytes);
  return ENOSPC;
}

// ---- the end

bool Segment::Retire(bool has_something_to_tell) noexcept {
  const std::lock_guard lock(file_mutex_);
  struct stat status {};
  if (FileStatus(fd_, &status) != 0 || !IsOurs(status)) return false;
  const std::string_view path{path_};
  const char* name = path_ + path.rfind('/') + 1;
  const int directory = open(directory_, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return false;
  const bool goes =
      !has_something_to_tell && header_copy_.awaited_by == 0 && !DaemonRuns(directory);
  if (goes) {
    retired_.store(true, std::memory_order_relaxed);
    unlinkat(directory, name, 0);
  }
  close(directory);
  return goes;
}

// Something closed our descriptor, and the number may be somebody else's by now: it is left alone.
bool Segment::Reopen() noexcept {
  const int fd = open(path_, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  struct stat status {};
  if (FileStatus(fd, &status) != 0 || status.st_dev != device_ || status.st_ino != inode_) {
    close(fd);
    return false;
  }
  fd_ = MoveUp(fd);
  Lock(fd_);
  return true;
}

SegmentReport Segment::Remake() noexcept {
  SegmentReport report;
  const int directory = OpenSegmentDirectory(directory_, directory_, report);
  if (directory < 0) return report;
  const std::lock_guard lock(file_mutex_);
  const FileNames names = NamesFor(header_copy_.pid, header_copy_.nonce);
  const int fd = MakeFile(directory, names.tmp);
  if (fd < 0) {
    ExplainFailure(directory_, directory, errno, map_, PageBytes(fd_), report);
  } else if (!Replace(directory, fd, names.tmp, names.seg)) {
    ExplainFailure(directory_, directory, errno, map_, PageBytes(fd_), report);
    unlinkat(directory, names.tmp, 0);
    close(fd);
  } else {
    report.ok = true;
    report.Remark(content_lost_ ? "%s was cut short or overwritten; it was created again"
                                : "%s was removed; it was created again",
                  path_);
  }
  close(directory);
  return report;
}

// Of a content that is lost only the header and the capacities are written.
bool Segment::CopyTo(int fd) const noexcept {
  const auto copy = [&](uint64_t from, uint64_t end) {
    while (from < end) {
      const ssize_t wrote = pwrite(fd, base_ + from, end - from, static_cast<off_t>(from));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return false;
      from += static_cast<uint64_t>(wrote);
    }
    return true;
  };
  uint64_t at = 0;
  while (at < map_.file_bytes) {
    const wire::SectionRoom* next = nullptr;
    for (const wire::SectionRoom& room : rooms_) {
      if (room.offset() >= at && (next == nullptr || room.offset() < next->offset())) next = &room;
    }
    if (next == nullptr) return copy(at, map_.file_bytes);
    if (!copy(at, next->offset() + next->backed())) return false;
    at = next->offset() + next->size();
  }
  return true;
}

bool Segment::Replace(int directory, int fd, const char* tmp, const char* seg) noexcept {
  struct stat status {};
  if (FileStatus(fd, &status) != 0) return false;
  if (!content_lost_ && !CopyTo(fd)) {
    content_lost_ = errno == EFAULT;  // a page is gone: the next attempt does without them all
    return false;
  }
  if (mmap(base_, map_.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    return false;
  }
  if (content_lost_) {
    FillSections(base_);
    std::memcpy(base_, &header_copy_, sizeof header_copy_);
  }
  bus_guard::Mend(guard_);
  // From here on the new file is ours, whether or not it gets its name.
  struct stat old {};
  if (FileStatus(fd_, &old) == 0 && IsOurs(old)) close(fd_);
  fd_ = fd;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return renameat(directory, tmp, directory, seg) == 0;
}

}  // namespace nanwatch
