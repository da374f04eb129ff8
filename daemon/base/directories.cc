// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "daemon/base/unique_fd.h"
#include "proto/wire/naming.h"
#include "proto/wire/place.h"

namespace nanwatch {
namespace {

constexpr mode_t kPrivate = 0700;

std::string Quoted(std::string_view path) { return "'" + std::string(path) + "'"; }

std::string UserId() { return std::to_string(geteuid()); }

std::string Parent(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// One directory of the way, which may be there already.
Status MakeOne(const std::string& path) {
  if (mkdir(path.c_str(), kPrivate) == 0 || errno == EEXIST) return Status();
  return Status::FromErrno(errno, "cannot make the directory " + Quoted(path));
}

Status MakeWithParents(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    if (access(path.substr(0, slash).c_str(), F_OK) == 0) continue;
    if (Status made = MakeOne(path.substr(0, slash)); !made.ok()) return made;
  }
  return MakeOne(path);
}

// A write is the only proof: access() is right about modes but not about read-only or full file
// systems.
Status ProveWritable(const std::string& path) {
  const std::string probe = path + "/.write-test-" + std::to_string(getpid());
  UniqueFd fd(open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return Status::FromErrno(errno, "the state directory " + Quoted(path) +
                                        " cannot be written; make it writable, or set " +
                                        wire::kEnvStateDir + " to a directory on a local disk");
  }
  errno = 0;
  const bool wrote = write(fd.get(), "nanwatch\n", 9) == 9;
  const int error = wrote ? 0 : (errno != 0 ? errno : ENOSPC);
  unlink(probe.c_str());
  if (wrote) return Status();
  return Status::FromErrno(error, "the disk that holds the state directory " + Quoted(path) +
                                      " is full; free some space, or set " + wire::kEnvStateDir +
                                      " to a directory elsewhere");
}

// How the names of what nanwatch keeps in a state directory begin.
constexpr std::array<std::string_view, 7> kOurs = {
    "nanwatch.", "events.jsonl", wire::kDaemonLock, ".write-test-",
    "unseen-",   "unwatched-",   "capsules"};

bool HoldsOursOnly(const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename();
    const bool is_ours = std::any_of(kOurs.begin(), kOurs.end(),
                                     [&](std::string_view ours) { return name.starts_with(ours); });
    if (!is_ours) return false;
  }
  return !error;
}

// Whoever may replace files in a directory decides what we write to, and what is read as ours. A
// umask of 002 makes directories that the group may write to: those are closed. A directory that
// people share on purpose, and one that holds anything else, is not ours to close.
Status CloseToOthers(const std::string& path, mode_t mode, std::string* note) {
  if ((mode & (S_IWGRP | S_IWOTH)) == 0) return Status();
  if ((mode & (S_ISVTX | S_ISGID)) != 0 || !HoldsOursOnly(path)) {
    return Status(ErrorKind::kPermission,
                  "the state directory " + Quoted(path) +
                      " can be written by others, and is not nanwatch's own; set " +
                      wire::kEnvStateDir + " to a directory that is, or run: chmod go-w " + path);
  }
  if (note == nullptr) return Status();
  struct stat info {};
  const bool closed = chmod(path.c_str(), mode & 07777 & ~(S_IWGRP | S_IWOTH)) == 0 &&
                      stat(path.c_str(), &info) == 0 && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  *note = "the state directory " + Quoted(path);
  if (closed) {
    *note += " could be written by others: it was closed to them";
  } else {  // file systems without modes of their own
    *note += std::string(
                 " can be written by others, and its file system does not let that be changed: "
                 "set ") +
             wire::kEnvStateDir + " to a directory on a local disk";
  }
  return Status();
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
}

Result<std::string> SegmentDirectoryPath(const Environment& environment) {
  std::string path = environment(wire::kEnvDir);
  if (path.empty()) {
    return std::string(wire::DefaultDirectoryOf(geteuid(), wire::PlaceOfProcess(0).key).path);
  }
  if (path[0] != '/') {
    return Status(ErrorKind::kInvalid, std::string(wire::kEnvDir) + " is " + Quoted(path) +
                                           ", which is not an absolute path; jobs started in other "
                                           "directories would look elsewhere");
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.size() > static_cast<size_t>(wire::kDirPathMax)) {
    return Status(ErrorKind::kInvalid,
                  std::string(wire::kEnvDir) + " is " + std::to_string(path.size()) +
                      " bytes long; the longest that works is " +
                      std::to_string(wire::kDirPathMax) + ": choose a shorter path");
  }
  return path;
}

Status CheckPrivateDirectory(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return Status::FromErrno(errno, Quoted(path));
  if (S_ISLNK(info.st_mode)) {
    return Status(
        ErrorKind::kPermission,
        Quoted(path) + " is a symbolic link; name the directory itself in " + wire::kEnvDir);
  }
  if (!S_ISDIR(info.st_mode)) {
    return Status(ErrorKind::kInvalid, Quoted(path) + " is not a directory; move it away, or set " +
                                           wire::kEnvDir + " to another path");
  }
  if (info.st_uid != geteuid()) {
    return Status(ErrorKind::kPermission, Quoted(path) + " belongs to user " +
                                              std::to_string(info.st_uid) + ", not to you (" +
                                              UserId() + "); set " + wire::kEnvDir +
                                              " to a directory of your own");
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status(ErrorKind::kPermission,
                  Quoted(path) + " can be written by others; run: chmod 700 " + path);
  }
  return Status();
}

Status EnsureSegmentDirectory(const std::string& path) {
  if (Status made = MakeOne(path); !made.ok()) return made;
  return CheckPrivateDirectory(path);
}

Result<StateDirectory> StateDirectoryPath(const Environment& environment) {
  if (const std::string chosen = environment(wire::kEnvStateDir); !chosen.empty()) {
    if (chosen[0] == '/') {
      const bool is_far = IsOnNetworkFileSystem(chosen);
      return StateDirectory{chosen, is_far ? chosen +
                                                 " is on a network file system, where the database "
                                                 "may be damaged by a second host: set " +
                                                 wire::kEnvStateDir + " to a local directory"
                                           : ""};
    }
    return Status(ErrorKind::kInvalid, std::string(wire::kEnvStateDir) + " is " + Quoted(chosen) +
                                           ", which is not an absolute path");
  }
  std::string base = environment("XDG_STATE_HOME");
  if (base.empty() || base[0] != '/') {
    const std::string home = environment("HOME");
    base = home.empty() ? "" : home + "/.local/state";
  }
  const std::string fallback = "/var/tmp/nanwatch-" + UserId();
  if (base.empty()) {
    return StateDirectory{fallback, "HOME is not set: database and logs are in " + fallback};
  }
  std::string path = base + "/nanwatch/" + HostName();
  if (IsOnNetworkFileSystem(path)) {
    return StateDirectory{fallback,
                          path +
                              " is on a network file system, where the database would not be safe: "
                              "database and logs are in " +
                              fallback};
  }
  return StateDirectory{std::move(path), ""};
}

Status EnsureStateDirectory(const std::string& path, std::string* note) {
  if (Status made = MakeWithParents(path); !made.ok()) {
    return made.WithContext(std::string("the state directory cannot be used (set ") +
                            wire::kEnvStateDir + " to another)");
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return Status::FromErrno(errno, Quoted(path));
  // A symbolic link of another user in /var/tmp counts as his, wherever it leads.
  if (info.st_uid != geteuid()) {
    return Status(ErrorKind::kPermission, "the state directory " + Quoted(path) +
                                              " belongs to user " + std::to_string(info.st_uid) +
                                              "; set " + wire::kEnvStateDir +
                                              " to a directory of your own");
  }
  if (note != nullptr) note->clear();
  if (S_ISDIR(info.st_mode)) {
    if (Status closed = CloseToOthers(path, info.st_mode, note); !closed.ok()) return closed;
  }
  return ProveWritable(path);
}

std::string StateBesideSegments(const std::string& segment_dir) { return segment_dir + "/state"; }

bool IsOnNetworkFileSystem(const std::string& path) {
  constexpr std::array<uint32_t, 11> kNetworkMagics = {
      0x6969,       // NFS
      0x517B,       // SMB
      0xFF534D42u,  // CIFS
      0xFE534D42u,  // SMB2
      0x0BD00BD0,   // Lustre
      0x47504653,   // GPFS
      0x19830326,   // BeeGFS
      0x00C36400,   // Ceph
      0x5346414F,   // AFS
      0x65735546,   // FUSE (sshfs, s3fs, ...)
      0x01021997,   // 9p
  };
  std::string existing = path;
  struct statfs info {};
  while (statfs(existing.c_str(), &info) != 0) {
    if (errno != ENOENT || existing == "/" || existing == ".") return false;
    existing = Parent(existing);
  }
  for (uint32_t magic : kNetworkMagics) {
    if (static_cast<uint32_t>(info.f_type) == magic) return true;
  }
  return false;
}

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string DaemonLockPath(const std::string& segment_dir) {
  return segment_dir + "/" + wire::DaemonLockNameOf(wire::PlaceOfProcess(0).key).text;
}
std::string StateLockPath(const std::string& state_dir) {
  return state_dir + "/" + wire::kDaemonLock;
}

std::string ExitSuffix() {
  return wire::kExitSuffix + std::string(wire::SuffixOf(wire::PlaceOfProcess(0).key).text);
}

std::string DatabasePath(const std::string& state_dir) { return state_dir + "/nanwatch.db"; }
std::string HumanLogPath(const std::string& state_dir) { return state_dir + "/nanwatch.log"; }
std::string EventLogPath(const std::string& state_dir) { return state_dir + "/events.jsonl"; }

}  // namespace nanwatch
