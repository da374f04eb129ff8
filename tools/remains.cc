// SPDX-License-Identifier: Apache-2.0
#include "tools/remains.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include "daemon/ingest/segment_reader.h"
#include "daemon/ingest/writer_liveness.h"
#include "proto/wire/naming.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;

// Somebody may be about to give it its name, or to use it.
constexpr uint64_t kFreshSeconds = 60;
// What a tool makes for a moment.
constexpr uint64_t kPassingSeconds = 3'600;

struct File {
  std::string path;
  std::string name;
  uint64_t bytes = 0;
  uint64_t age_seconds = 0;
  FileIdentity identity;
};

FileIdentity IdentityOf(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .changed_ns = info.st_ctim.tv_sec * int64_t{kNsPerSecond} + info.st_ctim.tv_nsec};
}

// Regular files of this user.
std::vector<File> FilesIn(const std::string& directory, const Clock& clock) {
  std::vector<File> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string path = entry.path();
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())
      continue;
    const auto now = static_cast<int64_t>(clock.real_ns() / kNsPerSecond);
    files.push_back({path, entry.path().filename(), static_cast<uint64_t>(info.st_blocks) * 512,
                     static_cast<uint64_t>(std::max<int64_t>(0, now - info.st_mtim.tv_sec)),
                     IdentityOf(info)});
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

// The number in nw-<pid>-...; 0 when there is none.
int32_t PidIn(std::string_view name) {
  int32_t pid = 0;
  name.remove_prefix(std::min(name.size(), std::strlen(wire::kSegmentPrefix)));
  std::from_chars(name.data(), name.data() + name.size(), pid);
  return pid;
}

bool BelongsToNobody(const File& file) {
  return file.age_seconds >= kFreshSeconds && !IsLocked(file.path) &&
         ProcessStartTicks(PidIn(file.name)) == 0;
}

enum class SegmentState { kInUse, kJustEnded, kUnread, kUnreadable };

// Pages that a process has mapped need not change a file's time; a heartbeat of an earlier boot may
// lie in the future.
bool EndedLongAgo(const File& file, const SegmentReader& reader, const Clock& clock) {
  const uint64_t heartbeat_ns = reader.Glance(0).state.heartbeat_ns();
  const uint64_t now_ns = clock.monotonic_ns();
  const bool is_silent =
      heartbeat_ns > now_ns || now_ns - heartbeat_ns >= kFreshSeconds * kNsPerSecond;
  return file.age_seconds >= kFreshSeconds && is_silent;
}

SegmentState StateOf(const File& file, const Clock& clock, std::string& why) {
  Result<SegmentReader> reader = SegmentReader::Open(file.path, SegmentReader::Access::kLook);
  if (reader.ok()) {
    if (reader->WriterLives(clock)) return SegmentState::kInUse;
    return EndedLongAgo(file, *reader, clock) ? SegmentState::kUnread : SegmentState::kJustEnded;
  }
  why = reader.status().message();
  if (why.starts_with(file.path + ": ")) why.erase(0, file.path.size() + 2);
  const ErrorKind kind = reader.status().kind();
  // Of another container, or of nobody knows whom: not ours to remove.
  const bool is_known = kind == ErrorKind::kInvalid || kind == ErrorKind::kUnsupported;
  return is_known && BelongsToNobody(file) ? SegmentState::kUnreadable : SegmentState::kInUse;
}

// The same file, in whatever state.
bool IsAmong(const std::vector<FileIdentity>& files, const FileIdentity& file) {
  return std::any_of(files.begin(), files.end(), [&](const FileIdentity& one) {
    return one.device == file.device && one.inode == file.inode;
  });
}

std::optional<std::string> WhatInSegments(const File& file, const Clock& clock,
                                          const std::vector<FileIdentity>& unread) {
  const std::string& name = file.name;
  if (name.ends_with(wire::kSegmentSuffix)) {
    std::string why;
    const SegmentState state = StateOf(file, clock, why);
    if (state == SegmentState::kUnreadable) return "not readable: " + why;
    if (state == SegmentState::kUnread && IsAmong(unread, file.identity))
      return "of an ended process; nobody has read its findings";
    return {};
  }
  const bool is_tmp = name.ends_with(wire::kSegmentTmpSuffix);
  if (is_tmp && name.starts_with(wire::kSegmentPrefix)) {
    if (!BelongsToNobody(file)) return {};
    return "a segment that was never finished";
  }
  const bool is_exit = is_tmp && name.find(wire::kExitSuffix) != std::string::npos;
  if ((is_exit || name.starts_with("attach-")) && file.age_seconds >= kPassingSeconds)
    return "of a tool that was killed";
  return {};
}

std::optional<std::string> WhatInState(const File& file) {
  if (file.name.starts_with("nanwatch.db.corrupt-")) return "a damaged database, moved aside";
  if (file.name.starts_with(".write-test-") && file.age_seconds >= kFreshSeconds)
    return "of a daemon that was killed";
  return {};
}

}  // namespace

int CountUnreadSegments(const Places& places, const Clock& clock) {
  int count = 0;
  std::string why;
  for (const File& file : FilesIn(places.segment_dir, clock)) {
    if (!file.name.ends_with(wire::kSegmentSuffix)) continue;
    const SegmentState state = StateOf(file, clock, why);
    if (state == SegmentState::kUnread || state == SegmentState::kJustEnded) ++count;
  }
  return count;
}

std::vector<FileIdentity> FindUnreadSegments(const Places& places, const Clock& clock) {
  std::vector<FileIdentity> unread;
  std::string why;
  for (const File& file : FilesIn(places.segment_dir, clock)) {
    if (file.name.ends_with(wire::kSegmentSuffix) &&
        StateOf(file, clock, why) == SegmentState::kUnread)
      unread.push_back(file.identity);
  }
  return unread;
}

std::vector<Remain> FindRemains(const Places& places, const Clock& clock,
                                const std::vector<FileIdentity>& unread) {
  std::vector<Remain> remains;
  for (const File& file : FilesIn(places.segment_dir, clock)) {
    if (auto what = WhatInSegments(file, clock, unread))
      remains.push_back({file.path, *std::move(what), file.bytes, file.identity});
  }
  for (const File& file : FilesIn(places.state_dir, clock)) {
    if (auto what = WhatInState(file))
      remains.push_back({file.path, *std::move(what), file.bytes, file.identity});
  }
  return remains;
}

std::string RemoveRemain(const Remain& remain) {
  struct stat info {};
  if (lstat(remain.path.c_str(), &info) != 0) return errno == ENOENT ? "" : std::strerror(errno);
  if (IdentityOf(info) != remain.identity) return "it is another file by now";
  if (unlink(remain.path.c_str()) == 0 || errno == ENOENT) return "";
  return std::strerror(errno);
}

}  // namespace nanwatch
