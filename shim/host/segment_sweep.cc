// SPDX-License-Identifier: Apache-2.0
#include "shim/host/segment_sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "proto/wire/naming.h"
#include "proto/wire/segment.h"
#include "shim/host/file_status.h"
#include "shim/host/monotonic_clock.h"
#include "shim/host/process_identity.h"

namespace nanwatch {
namespace {

constexpr int kNamesMax = 16384;
constexpr int64_t kUnfinishedAgeSeconds = 60;
constexpr int64_t kPassingFileAgeSeconds = 3600;

struct Name {
  char text[64];  // longer ones are nobody's segment, and are left alone
};

bool EndsWith(std::string_view text, std::string_view end) noexcept {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}
bool BeginsWith(std::string_view text, std::string_view begin) noexcept {
  return text.substr(0, begin.size()) == begin;
}

bool IsLocked(int fd) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// Start time of a process in clock ticks; 0 when it is gone or only waits to be collected.
uint64_t StartTicksOf(int32_t pid) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == '\0' || at[2] == 'Z' || at[2] == 'X') return 0;
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

// The pid in nw-<pid>-...; 0 when there is none.
int32_t PidInName(const char* name) noexcept {
  return static_cast<int32_t>(std::strtol(name + sizeof wire::kSegmentPrefix - 1, nullptr, 10));
}

bool ReadAt(int fd, void* to, size_t bytes, uint64_t offset) noexcept {
  return pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

const wire::SectionEntry* SectionOf(const wire::SegmentHeader& header,
                                    wire::SectionType type) noexcept {
  const uint32_t count = std::min(header.section_count, static_cast<uint32_t>(wire::kSectionsMax));
  for (uint32_t i = 0; i < count; ++i) {
    if (header.sections[i].type == static_cast<uint32_t>(type)) return &header.sections[i];
  }
  return nullptr;
}

// Whether nothing in it would be in a diagnosis: read by pread, which makes no pages.
bool HasNothingToTell(int fd, const wire::SegmentHeader& header) noexcept {
  using wire::SectionType;
  const auto read = [&](SectionType type, void* to, size_t bytes) {
    const wire::SectionEntry* section = SectionOf(header, type);
    return section != nullptr && section->size >= bytes && ReadAt(fd, to, bytes, section->offset);
  };
  uint64_t live[offsetof(wire::LiveBlock, own_cycles) / sizeof(uint64_t)];
  uint64_t ring[2];
  uint32_t sites = 0;
  uint32_t first = 0;
  if (!read(SectionType::kLive, live, sizeof live) ||
      !read(SectionType::kFindings, ring, sizeof ring) ||
      !read(SectionType::kSites, &sites, sizeof sites) ||
      !read(SectionType::kFirst, &first, sizeof first)) {
    return false;
  }
  constexpr size_t kBad = offsetof(wire::LiveBlock, values_bad) / sizeof(uint64_t);
  constexpr size_t kDropped = offsetof(wire::LiveBlock, values_dropped) / sizeof(uint64_t);
  return live[kBad] == 0 && live[kDropped] == 0 && ring[1] == 0 && sites == 0 && first == 0;
}

struct Unread {
  int name = 0;
  uint64_t bytes = 0;
  uint64_t started_real_ns = 0;
};

class Sweeper {
 public:
  Sweeper(int directory, const SweepLimits& limits) noexcept
      : directory_(directory), limits_(limits), ends_ns_(MonotonicNs() + limits.time_ns) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    now_seconds_ = now.tv_sec;
    // Who we are, in the words of a header.
    self_.reset(new (std::nothrow) wire::SegmentHeader());
    names_.reset(new (std::nothrow) Name[kNamesMax]);
    unread_.reset(new (std::nothrow) Unread[static_cast<size_t>(limits.files_read_max) + 1]);
  }

  Swept Run() noexcept {
    if (self_ == nullptr || names_ == nullptr || unread_ == nullptr) return {};
    const bool daemon_runs = DaemonRuns(directory_);
    List(!daemon_runs);
    if (count_ == 0) return swept_;
    FillIdentity(*self_);
    // Not always the same first ones.
    const int from = static_cast<int>(MonotonicNs() % static_cast<uint64_t>(count_));
    for (int i = 0; i < count_ && i < limits_.files_read_max && !IsOver(); ++i) {
      Judge((from + i) % count_);
    }
    RemoveOldest();
    return swept_;
  }

 private:
  bool IsOver() const noexcept { return MonotonicNs() >= ends_ns_; }

  void Remove(int name, int& counter) noexcept {
    if (unlinkat(directory_, names_[name].text, 0) == 0) ++counter;
  }

  // Names of what may be removed; passing files go at once, by their age alone.
  void List(bool segments) noexcept {
    const int copy = openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy < 0) return;
    DIR* stream = fdopendir(copy);
    if (stream == nullptr) {
      close(copy);
      return;
    }
    while (const dirent* entry = count_ < kNamesMax && !IsOver() ? readdir(stream) : nullptr) {
      const std::string_view name = entry->d_name;
      if (name.size() >= sizeof(Name)) {
        RemovePassing(entry->d_name);
        continue;
      }
      const bool is_ours = BeginsWith(name, wire::kSegmentPrefix);
      const bool is_segment = is_ours && EndsWith(name, wire::kSegmentSuffix);
      const bool is_unfinished = is_ours && EndsWith(name, wire::kSegmentTmpSuffix);
      if (is_unfinished || (is_segment && segments)) {
        std::memcpy(names_[count_++].text, entry->d_name, name.size() + 1);
      } else {
        RemovePassing(entry->d_name);
      }
    }
    closedir(stream);
  }

  bool IsOldFile(const char* name, int64_t age_seconds, struct stat* status) const noexcept {
    const int fd = openat(directory_, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    const bool known = FileStatus(fd, status) == 0;
    close(fd);
    return known && S_ISREG(status->st_mode) && status->st_uid == geteuid() &&
           now_seconds_ - status->st_mtim.tv_sec >= age_seconds;
  }

  // What tools leave behind when they are killed.
  void RemovePassing(const char* name) noexcept {
    const std::string_view text = name;
    const bool passes = BeginsWith(text, "attach-") || EndsWith(text, wire::kUnwatchedSuffix) ||
                        (EndsWith(text, wire::kSegmentTmpSuffix) &&
                         text.find(wire::kExitSuffix) != std::string_view::npos);
    struct stat status {};
    if (!passes || !IsOldFile(name, kPassingFileAgeSeconds, &status)) return;
    if (unlinkat(directory_, name, 0) == 0) ++swept_.leftover;
  }

  void Judge(int name) noexcept {
    const char* text = names_[name].text;
    if (PidInName(text) == getpid()) return;  // perhaps ours: opening it would give up its lock
    if (EndsWith(text, wire::kSegmentTmpSuffix)) {
      JudgeUnfinished(name);
      return;
    }
    const int fd = openat(directory_, text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    JudgeSegment(name, fd);
    close(fd);
  }

  void JudgeUnfinished(int name) noexcept {
    struct stat status {};
    const char* text = names_[name].text;
    if (!IsOldFile(text, kUnfinishedAgeSeconds, &status)) return;
    const int fd = openat(directory_, text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    if (!IsLocked(fd) && StartTicksOf(PidInName(text)) == 0) Remove(name, swept_.leftover);
    close(fd);
  }

  void JudgeSegment(int name, int fd) noexcept {
    struct stat status {};
    wire::SegmentHeader header;
    if (FileStatus(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
        !ReadAt(fd, &header, sizeof header, 0) || header.magic != wire::kSegmentMagic) {
      return;
    }
    if (std::memcmp(header.boot_id, self_->boot_id, sizeof header.boot_id) != 0 ||
        header.pid_namespace != self_->pid_namespace || self_->pid_namespace == 0) {
      return;
    }
    if (IsLocked(fd) || header.process_start_ticks == 0 ||
        StartTicksOf(header.pid) == header.process_start_ticks) {
      return;
    }
    if (header.awaited_by > 0 && StartTicksOf(header.awaited_by) != 0) return;
    const bool is_known_format = header.wire_major == wire::kWireMajor;
    if (is_known_format && HasNothingToTell(fd, header)) {
      const bool is_of_our_job =
          self_->job[0] != '\0' && std::strncmp(self_->job, header.job, sizeof header.job) == 0;
      if (!is_of_our_job) Remove(name, swept_.clean);
      return;
    }
    unread_[unread_count_++] = {name, static_cast<uint64_t>(status.st_blocks) * 512,
                                header.started_real_ns};
  }

  void RemoveOldest() noexcept {
    uint64_t bytes = 0;
    for (int i = 0; i < unread_count_; ++i) bytes += unread_[i].bytes;
    std::sort(unread_.get(), unread_.get() + unread_count_, [](const Unread& a, const Unread& b) {
      return a.started_real_ns < b.started_real_ns;
    });
    int left = unread_count_;
    for (int i = 0; i < unread_count_; ++i) {
      if (left <= limits_.unread_files_max && bytes <= limits_.unread_bytes_max) return;
      Remove(unread_[i].name, swept_.unread);
      bytes -= unread_[i].bytes;
      --left;
    }
  }

  int directory_;
  SweepLimits limits_;
  uint64_t ends_ns_;
  int64_t now_seconds_ = 0;
  std::unique_ptr<wire::SegmentHeader> self_;
  std::unique_ptr<Name[]> names_;
  std::unique_ptr<Unread[]> unread_;
  int count_ = 0;
  int unread_count_ = 0;
  Swept swept_;
};

}  // namespace

Swept Sweep(int directory, const SweepLimits& limits) noexcept {
  return Sweeper(directory, limits).Run();
}

bool DaemonRuns(int directory) noexcept {
  const int fd = openat(directory, wire::kDaemonLock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const bool held = IsLocked(fd);
  close(fd);
  return held;
}

}  // namespace nanwatch
