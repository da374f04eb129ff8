// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/dead_places.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "daemon/base/directories.h"
#include "daemon/base/unique_fd.h"
#include "daemon/ingest/writer_liveness.h"
#include "proto/wire/naming.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnfinishedAgeSeconds = 60;

// The pid in nw-<pid>-<nonce>.tmp; 0 when there is none.
int32_t PidInName(std::string_view name) {
  name.remove_prefix(std::min(name.size(), std::string_view(wire::kSegmentPrefix).size()));
  int32_t pid = 0;
  std::from_chars(name.data(), name.data() + name.size(), pid);
  return pid;
}

bool IsLocked(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

UniqueFd OpenOwn(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_uid != geteuid())
    return UniqueFd();
  return fd;
}

// Of CLOCK_MONOTONIC; the start when nothing was published yet.
uint64_t LastBeat(int fd, const wire::SegmentHeader& header) {
  uint64_t beat = 0;
  const uint32_t count = std::min<uint32_t>(header.section_count, wire::kSectionsMax);
  for (uint32_t i = 0; i < count; ++i) {
    const wire::SectionEntry& entry = header.sections[i];
    if (entry.type != static_cast<uint32_t>(wire::SectionType::kLive)) continue;
    // The heartbeat is the block's first word.
    if (pread(fd, &beat, sizeof beat, static_cast<off_t>(entry.offset)) != sizeof beat) return 0;
    break;
  }
  return std::max(beat, header.started_monotonic_ns);
}

bool IsPresumedDead(int fd, const HostIdentity& self, const Clock& clock) {
  wire::SegmentHeader header{};
  if (pread(fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) return false;
  if (header.magic != wire::kSegmentMagic || header.wire_major != wire::kWireMajor) return false;
  const std::string_view boot_id(header.boot_id, strnlen(header.boot_id, sizeof header.boot_id));
  if (boot_id != self.boot_id || !IsOfAnotherPlace(header, self) || IsLocked(fd)) return false;
  const uint64_t beat = LastBeat(fd, header);
  const uint64_t now = clock.monotonic_ns();
  return beat != 0 && beat < now && now - beat >= kPresumedDeadNs;
}

bool IsOwnDirectory(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

// Whether anything in the directory speaks against removing it.
bool IsInUse(const std::string& directory, const Clock& clock) {
  std::error_code error;
  const uint64_t now_s = clock.real_ns() / kNsPerSecond;
  for (auto entry = fs::recursive_directory_iterator(directory, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path();
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0) continue;
    if (static_cast<uint64_t>(info.st_mtim.tv_sec) + kPresumedDeadNs / kNsPerSecond > now_s)
      return true;
    if (path.ends_with(wire::kSegmentSuffix) || S_ISLNK(info.st_mode)) return true;
    if (!path.ends_with(".lock")) continue;
    const UniqueFd lock = OpenOwn(path);
    if (!lock.valid() || IsLocked(lock.get())) return true;
  }
  return static_cast<bool>(error);
}

// "/dev/shm/nanwatch-0-3f9c01d2"
bool IsPlaceName(std::string_view path, std::string_view prefix) {
  constexpr size_t kDigits = 8;
  if (!path.starts_with(prefix) || path.size() != prefix.size() + 1 + kDigits) return false;
  return path[prefix.size()] == '-' &&
         path.find_first_not_of("0123456789abcdef", prefix.size() + 1) == std::string_view::npos;
}

}  // namespace

int RemoveDeadForeignSegments(const std::string& segment_dir, const Clock& clock) {
  const HostIdentity self = HostIdentity::Current();
  int removed = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(segment_dir, error)) {
    const std::string path = entry.path();
    if (!path.ends_with(wire::kSegmentSuffix)) continue;
    const UniqueFd fd = OpenOwn(path);
    if (!fd.valid() || !IsPresumedDead(fd.get(), self, clock)) continue;
    removed += unlink(path.c_str()) == 0 ? 1 : 0;
  }
  return removed;
}

std::vector<std::string> RemoveDeadPlaces(const std::string& prefix, const std::string& own_dir,
                                          const Clock& clock) {
  std::vector<std::string> gone;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(prefix).parent_path(), error)) {
    const std::string path = entry.path();
    if (path == own_dir || !IsPlaceName(path, prefix) || !IsOwnDirectory(path)) continue;
    (void)RemoveDeadForeignSegments(path, clock);
    if (IsInUse(path, clock)) continue;
    std::error_code refused;
    fs::remove_all(path, refused);
    if (!refused) gone.push_back(path);
  }
  return gone;
}

void RemoveUnfinished(const std::string& path, const Clock& clock) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) return;
  const int64_t age_seconds =
      static_cast<int64_t>(clock.real_ns() / kNsPerSecond) - info.st_mtim.tv_sec;
  if (age_seconds < kUnfinishedAgeSeconds || IsLocked(path)) return;
  const std::string name = fs::path(path).filename();
  if (const int32_t pid = PidInName(name); pid > 0 && ProcessStartTicks(pid) != 0) return;
  unlink(path.c_str());
}

bool IsGone(const RunRow& row, const HostIdentity& self, uint64_t now_real_ns) {
  const Run& run = row.run;
  if (run.boot_id() != self.boot_id) return true;
  if (run.pid_namespace() == self.pid_namespace)
    return run.process_start_ticks() == 0 ||
           ProcessStartTicks(run.pid()) != run.process_start_ticks();
  return now_real_ns > row.updated_real_ns && now_real_ns - row.updated_real_ns >= kPresumedDeadNs;
}

}  // namespace nanwatch
