#include "shim/host/segment_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shim/host/file_status.h"
#include "shim/host/ignore_text.h"
#include "shim/host/mapped_file.h"
#include "shim/host/process_identity.h"
#include "shim/host/segment_directory.h"

namespace nanwatch {
namespace {

uint64_t Nonce() noexcept {
  uint64_t nonce = 0;
  if (getrandom(&nonce, sizeof nonce, GRND_NONBLOCK) == sizeof nonce && nonce != 0) return nonce;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  nonce = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
  return (nonce ^ static_cast<uint64_t>(getpid()) << 40) * 0x9e3779b97f4a7c15ull | 1;
}

// 0 or an errno. All pages exist afterwards: without that, a full tmpfs would be a SIGBUS in the
// job.
int Allocate(int fd, uint64_t bytes) noexcept {
  rlimit limit{};
  // Beyond the limit the kernel sends SIGXFSZ, which would end the job.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) return EFBIG;
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

bool Lock(int fd) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 0;
  lock.l_len = 1;
  return fcntl(fd, F_SETLK, &lock) == 0;
}

// Out of the way of programs that count on low numbers for their own files, or close them in bulk.
int MoveUp(int fd) noexcept {
  constexpr int kLowest = 200;
  const int higher = fcntl(fd, F_DUPFD_CLOEXEC, kLowest);
  if (higher < 0) return fd;
  close(fd);
  return higher;
}

struct FileNames {
  char tmp[64];
  char seg[64];
};

FileNames NamesFor(int32_t pid, uint64_t nonce) noexcept {
  FileNames names;
  const auto number = static_cast<unsigned long long>(nonce);
  std::snprintf(names.tmp, sizeof names.tmp, "%s%d-%016llx%s", wire::kSegmentPrefix, pid, number,
                wire::kSegmentTmpSuffix);
  std::snprintf(names.seg, sizeof names.seg, "%s%d-%016llx%s", wire::kSegmentPrefix, pid, number,
                wire::kSegmentSuffix);
  return names;
}

// The open and locked file under its temporary name, or -1 with errno; nothing is left behind then.
int MakeFile(int directory, const FileNames& names, uint64_t bytes) noexcept {
  int fd = openat(directory, names.tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  fd = MoveUp(fd);
  const int error = Allocate(fd, bytes);
  if (error == 0 && Lock(fd)) return fd;
  const int reason = error != 0 ? error : errno;
  unlinkat(directory, names.tmp, 0);
  close(fd);
  errno = reason;
  return -1;
}

constexpr unsigned long long Kib(uint64_t bytes) { return (bytes + 1023) / 1024; }

uint64_t FreeBytes(int directory) noexcept {
  struct statvfs status {};
  if (fstatvfs(directory, &status) != 0) return 0;
  return status.f_bavail * status.f_frsize;
}

void ExplainFailure(const char* path, int directory, int error, uint64_t bytes, uint64_t least,
                    SegmentReport& report) noexcept {
  char buffer[128];
  if (error == ENOSPC || error == EDQUOT) {
    report.Fail(
        "%s has %llu KiB free, but a segment takes %llu KiB, or %llu KiB at the least; make room "
        "or "
        "enlarge the file system (in Docker: --shm-size), or set NANWATCH_DIR to a larger tmpfs",
        path, Kib(FreeBytes(directory)), Kib(bytes), Kib(least));
  } else if (error == EFBIG) {
    report.Fail(
        "a segment takes %llu KiB, or %llu KiB at the least, but this process may not make files "
        "that large; raise the limit (ulimit -f)",
        Kib(bytes), Kib(least));
  } else {
    report.Fail("no segment can be made in %s: %s", path, ErrorText(error, buffer, sizeof buffer));
  }
}

SegmentMap WholeMap(const SegmentLayout& layout) noexcept {
  SegmentMap map = MapSegment(layout);
  AppendIgnoreSection(map);
  return map;
}

void FillHeader(wire::SegmentHeader& header, const SegmentMap& map, const SegmentOptions& options,
                uint64_t nonce) noexcept {
  FillIdentity(header);
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

// Capacities stand in the sections' own headers; every writer sets its own again. Here, so that a
// reader who comes before the first writer finds them.
void FillSections(unsigned char* base, const SegmentMap& map) noexcept {
  const SegmentLayout& layout = map.layout;
  reinterpret_cast<wire::RingHeader*>(base + map.ring)->capacity = layout.ring_slots;
  reinterpret_cast<wire::StepRingHeader*>(base + map.steps)->capacity = layout.steps;
  reinterpret_cast<wire::StepRingHeader*>(base + map.stats)->capacity = layout.stats;
  reinterpret_cast<wire::SiteTableHeader*>(base + map.sites)->capacity = layout.sites;
  auto* names = reinterpret_cast<wire::NameTableHeader*>(base + map.names);
  names->capacity = layout.names;
  names->bytes_capacity = layout.name_bytes;
  // The last one, where WholeMap() put it.
  const uint64_t ignore = map.sections[map.section_count - 1].offset;
  FillIgnore(*reinterpret_cast<wire::IgnoreSection*>(base + ignore));
}

}  // namespace

Segment* Segment::Create(const SegmentOptions& options, SegmentReport& report) noexcept {
  report = {};
  auto* segment = new (std::nothrow) Segment();
  if (segment == nullptr) {
    report.Fail("no segment can be made: out of memory");
    return nullptr;
  }
  const int directory = OpenSegmentDirectory(options.directory, segment->directory_, report);
  if (directory >= 0) {
    report.ok = segment->Make(directory, options, report);
    close(directory);
  }
  if (report.ok) return segment;
  delete segment;
  return nullptr;
}

bool Segment::Make(int directory, const SegmentOptions& options, SegmentReport& report) noexcept {
  const uint64_t nonce = Nonce();
  const FileNames names = NamesFor(getpid(), nonce);
  map_ = WholeMap(options.layout);
  const uint64_t wanted = map_.file_bytes;
  const SegmentMap least = WholeMap(Quarter(options.layout));
  fd_ = MakeFile(directory, names, map_.file_bytes);
  if (fd_ < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    map_ = least;
    fd_ = MakeFile(directory, names, map_.file_bytes);
    report.Remark(
        "%s has little room: the segment is %llu KiB instead of %llu KiB, and findings are "
        "dropped earlier when no daemon reads them",
        directory_, Kib(map_.file_bytes), Kib(wanted));
  }
  if (fd_ < 0) {
    ExplainFailure(directory_, directory, errno, wanted, least.file_bytes, report);
    return false;
  }
  base_ = MapFile(fd_, map_.file_bytes);
  struct stat status {};
  if (base_ != nullptr && FileStatus(fd_, &status) == 0) {
    device_ = status.st_dev;
    inode_ = status.st_ino;
    FillSections(base_, map_);
    FillHeader(header(), map_, options, nonce);
    std::snprintf(path_, sizeof path_, "%s/%s", directory_, names.seg);
    if (renameat(directory, names.tmp, directory, names.seg) == 0) return true;
  }
  ExplainFailure(directory_, directory, errno, wanted, least.file_bytes, report);
  unlinkat(directory, names.tmp, 0);
  close(fd_);
  return false;
}

bool Segment::StillThere() noexcept {
  struct stat status {};
  const bool is_ours =
      FileStatus(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
  if (!is_ours) return Reopen();
  if (status.st_nlink == 0) return false;
  (void)Lock(fd_);  // again: a stranger's close of this file, by any descriptor, takes it from us
  return true;
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
  const FileNames names = NamesFor(header().pid, header().nonce);
  const int fd = MakeFile(directory, names, map_.file_bytes);
  if (fd < 0) {
    ExplainFailure(directory_, directory, errno, map_.file_bytes, map_.file_bytes, report);
  } else if (!Replace(directory, fd, names.tmp, names.seg)) {
    ExplainFailure(directory_, directory, errno, map_.file_bytes, map_.file_bytes, report);
    unlinkat(directory, names.tmp, 0);
    close(fd);
  } else {
    report.ok = true;
    report.Remark("%s had been removed and was made anew", path_);
  }
  close(directory);
  return report;
}

bool Segment::Replace(int directory, int fd, const char* tmp, const char* seg) noexcept {
  struct stat status {};
  if (FileStatus(fd, &status) != 0) return false;
  for (uint64_t done = 0; done < map_.file_bytes;) {
    const ssize_t wrote =
        pwrite(fd, base_ + done, map_.file_bytes - done, static_cast<off_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<uint64_t>(wrote);
  }
  if (mmap(base_, map_.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    return false;
  }
  // From here on the new file is ours, whether or not it gets its name.
  struct stat old {};
  if (FileStatus(fd_, &old) == 0 && old.st_dev == device_ && old.st_ino == inode_) close(fd_);
  fd_ = fd;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return renameat(directory, tmp, directory, seg) == 0;
}

}  // namespace nanwatch
