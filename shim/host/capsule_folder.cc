// SPDX-License-Identifier: Apache-2.0
#include "shim/host/capsule_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "proto/wire/capsule.h"

namespace nanwatch {
namespace {

constexpr int kFoldersMax = 256;
constexpr uint64_t kShareOfFree = 20;  // a capsule takes one part of so many

// A file longer than RLIMIT_FSIZE ends the process by a signal. The limit is asked for first; this
// is for one that changes meanwhile.
class NoSizeSignal {
 public:
  NoSizeSignal() noexcept {
    sigemptyset(&set_);
    sigaddset(&set_, SIGXFSZ);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~NoSizeSignal() {
    constexpr timespec kNow{.tv_sec = 0, .tv_nsec = 0};
    if (!was_pending_) (void)sigtimedwait(&set_, nullptr, &kNow);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  sigset_t set_;
  sigset_t before_;
  bool was_pending_;
};

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool ok() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

bool WriteAll(int fd, iovec piece) {
  while (piece.iov_len != 0) {
    const ssize_t wrote = write(fd, piece.iov_base, piece.iov_len);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    piece.iov_base = static_cast<char*>(piece.iov_base) + wrote;
    piece.iov_len -= static_cast<size_t>(wrote);
  }
  return true;
}

bool WriteFile(int folder, const char* name, std::span<const iovec> pieces) {
  const Descriptor file(
      openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  return file.ok() && std::all_of(pieces.begin(), pieces.end(), [&file](const iovec& piece) {
           return WriteAll(file.get(), piece);
         });
}

void RemoveFolder(int parent, const char* name) {
  const Descriptor folder(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.ok()) return;
  (void)unlinkat(folder.get(), wire::kCapsuleTensors, 0);
  (void)unlinkat(folder.get(), wire::kCapsuleManifest, 0);
  (void)unlinkat(parent, name, AT_REMOVEDIR);
}

const char* FindTooLittleRoom(int directory, uint64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < bytes) {
    return "the limit on the size of files (ulimit -f) is too low";
  }
  struct statvfs room {};
  if (fstatvfs(directory, &room) != 0 || room.f_frsize == 0) return nullptr;
  const uint64_t free_bytes = static_cast<uint64_t>(room.f_bavail) * room.f_frsize;
  return bytes > free_bytes / kShareOfFree ? "the disk is too full" : nullptr;
}

// Processes of a job that come and go (a DataLoader's workers) write theirs, too.
bool HoldsTooMany(int directory) {
  const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = copy >= 0 ? fdopendir(copy) : nullptr;
  if (entries == nullptr) {
    if (copy >= 0) close(copy);
    return false;
  }
  int count = 0;
  while (count < kFoldersMax && readdir(entries) != nullptr) ++count;
  (void)closedir(entries);
  return count >= kFoldersMax;
}

const char* WriteFolder(int directory, const char* partial, const CapsuleContent& content) {
  if (mkdirat(directory, partial, 0700) != 0) return "its folder could not be made";
  const Descriptor folder(
      openat(directory, partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const iovec manifest{const_cast<char*>(content.manifest.data()), content.manifest.size()};
  const bool wrote = folder.ok() &&
                     WriteFile(folder.get(), wire::kCapsuleTensors, content.tensors) &&
                     WriteFile(folder.get(), wire::kCapsuleManifest, std::span(&manifest, 1));
  return wrote ? nullptr : "it could not be written";
}

}  // namespace

const char* WriteCapsule(const char* directory, const char* name,
                         const CapsuleContent& content) noexcept {
  const int errno_before = errno;
  const NoSizeSignal no_signal;
  const char* why = "its directory could not be opened";
  (void)mkdir(directory, 0700);
  const Descriptor parent(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.ok()) {
    uint64_t bytes = content.manifest.size();
    for (const iovec& piece : content.tensors) bytes += piece.iov_len;
    char partial[NAME_MAX + 1];
    char written[NAME_MAX + 1];
    (void)snprintf(partial, sizeof partial, "%s%s", name, wire::kCapsulePartial);
    (void)snprintf(written, sizeof written, "%s%s", name, wire::kCapsuleWritten);
    why = HoldsTooMany(parent.get()) ? "there are 256 of them already"
                                     : FindTooLittleRoom(parent.get(), bytes);
    if (why == nullptr) {
      why = WriteFolder(parent.get(), partial, content);
      if (why == nullptr && renameat(parent.get(), partial, parent.get(), written) != 0) {
        why = "it could not be renamed";
      }
      if (why != nullptr) RemoveFolder(parent.get(), partial);
    }
  }
  errno = errno_before;
  return why;
}

void RemoveCapsule(const char* directory, const char* name) noexcept {
  const int errno_before = errno;
  const Descriptor parent(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.ok()) {
    char written[NAME_MAX + 1];
    (void)snprintf(written, sizeof written, "%s%s", name, wire::kCapsuleWritten);
    RemoveFolder(parent.get(), written);
  }
  errno = errno_before;
}

}  // namespace nanwatch
