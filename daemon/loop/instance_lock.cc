// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/instance_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "daemon/base/directories.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

struct flock WholeFile() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// The second line of the file, "since 2026-11-21T10:39:06.123Z", as its holder wrote it.
std::string SinceWhen(int fd) {
  char text[256];
  const ssize_t got = pread(fd, text, sizeof text, 0);
  if (got <= 0) return "";
  const std::string_view content(text, static_cast<size_t>(got));
  const size_t line = content.find('\n');
  if (line == std::string_view::npos) return "";
  return " " +
         wire::CleanText(content.substr(line + 1, content.find('\n', line + 1) - line - 1), 64);
}

// The holder may live in a pid namespace that we cannot see into: then without its number.
Status SomebodyRuns(int fd, const std::string& purpose) {
  struct flock holder = WholeFile();
  const bool known =
      fcntl(fd, F_GETLK, &holder) == 0 && holder.l_type != F_UNLCK && holder.l_pid > 0;
  return Status(ErrorKind::kBusy, "another nanwatchd " + purpose +
                                      (known ? ": process " + std::to_string(holder.l_pid) : "") +
                                      SinceWhen(fd));
}

}  // namespace

Status InstanceLock::Probe(const std::string& path, const std::string& purpose) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct flock lock = WholeFile();
  if (!fd.valid() || fcntl(fd.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return {};
  return SomebodyRuns(fd.get(), purpose);
}

Result<InstanceLock> InstanceLock::Take(const std::string& path, const std::string& purpose,
                                        const Clock& clock) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot open " + path);
  struct flock lock = WholeFile();
  if (fcntl(fd.get(), F_SETLK, &lock) != 0) {
    if (errno == EACCES || errno == EAGAIN) return SomebodyRuns(fd.get(), purpose);
    return Status::FromErrno(errno, "cannot lock " + path);
  }
  const std::string content =
      std::to_string(getpid()) + "\nsince " + FormatUtc(clock.real_ns()) + "\n";
  // What it says is a courtesy; on a full tmpfs the lock alone does.
  if (ftruncate(fd.get(), 0) == 0) (void)!pwrite(fd.get(), content.data(), content.size(), 0);
  InstanceLock taken(path, std::move(fd));
  if (!taken.StillInPlace())
    return Status(ErrorKind::kBusy, path + " was removed while it was being locked");
  return taken;
}

bool InstanceLock::StillInPlace() const {
  struct stat held {};
  struct stat named {};
  return fstat(fd_.get(), &held) == 0 && lstat(path_.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

Result<InstanceLock> TakeDaemonLock(const std::string& segment_dir, const Clock& clock) {
  return InstanceLock::Take(DaemonLockPath(segment_dir), "runs for " + segment_dir, clock);
}

Result<InstanceLock> TakeStateLock(const std::string& state_dir, const Clock& clock) {
  return InstanceLock::Take(StateLockPath(state_dir), "writes the database in " + state_dir, clock);
}

}  // namespace nanwatch
