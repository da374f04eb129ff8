// SPDX-License-Identifier: Apache-2.0
// A place: the processes that can see each other live and have the same root, so that one daemon
// may speak for all of them. The host is one place, each container is another.
//
// Containers often share /dev/shm, and everybody in them may be user 0. The name of the user alone
// would lead them into one directory: one daemon would take the others' segments into its own
// database, and call processes dead that it cannot see. So the place's key goes into the names.
//
//   the host            key 0        /dev/shm/nanwatch-1000            daemon.lock
//   a container         0x3f9c01d2   /dev/shm/nanwatch-0-3f9c01d2      daemon-3f9c01d2.lock
//
// The host is who runs in the first pid namespace with the root of process 1. Login shells, cron,
// Slurm and services of systemd agree on that, also in mount namespaces of their own (PrivateTmp).
// A container has another pid namespace, or with --pid=host another root. Nothing here needs a
// privilege. Read once when a segment is made; std and libc only, no allocation, no state.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "proto/wire/hash.h"
#include "proto/wire/naming.h"

namespace nanwatch::wire {

// The inode of the pid namespace that a kernel begins with, the same on every host.
inline constexpr uint64_t kFirstPidNamespace = 0xEFFFFFFC;

struct Place {
  uint64_t pid_namespace = 0;  // inode; 0: unknown
  uint32_t key = 0;            // 0: the host
};

namespace place_internal {

// stat() of newer C libraries has a symbol that older ones lack.
inline bool Status(const char* path, struct stat* status) noexcept {
  return syscall(SYS_newfstatat, AT_FDCWD, path, status, 0) == 0;
}

// Device and root of the first mount at "/" of a mountinfo file, "254:0 /"; false when it cannot be
// read or shows none, as in a chroot. A line may be longer than any buffer, so it is read by bytes.
inline bool RootMount(const char* path, char (&mount)[256]) noexcept {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char piece[4096];
  size_t length = 0;
  int field = 1;
  size_t point_length = 0;  // of the fifth field, where it is mounted
  bool found = false;
  for (ssize_t got = 0; !found && (got = read(fd, piece, sizeof piece)) > 0;) {
    for (ssize_t i = 0; i < got && !found; ++i) {
      const char c = piece[i];
      if (c == '\n') {
        field = 1;
        length = point_length = 0;
      } else if (c == ' ') {
        found = field == 5 && point_length == 1;
        ++field;
      }
      if ((field == 3 || field == 4) && c != '\n' && length < sizeof mount - 1) {
        mount[length++] = c;
      }
      if (field == 5 && c != ' ') ++point_length;
    }
  }
  close(fd);
  mount[length] = '\0';
  return found;
}

// Kinds of file system that hosts rarely have as their root and containers always.
inline bool IsContainersKind(const char* root) noexcept {
  struct statfs kind {};
  if (statfs(root, &kind) != 0) return false;
  constexpr uint32_t kKinds[] = {
      0x794C7630,  // overlayfs
      0x01021994,  // tmpfs
      0x858458F6,  // ramfs
      0x73717368,  // squashfs
      0x61756673,  // aufs
      0x65735546,  // FUSE
  };
  for (const uint32_t known : kKinds) {
    if (static_cast<uint32_t>(kind.f_type) == known) return true;
  }
  return false;
}

// In the first pid namespace: whether the root is another than that of process 1. Where that cannot
// be read (hidepid), the kind of file system decides.
inline bool IsContainersRoot(const char* mounts, const char* root) noexcept {
  char ours[256];
  char first[256];
  if (!RootMount("/proc/1/mountinfo", first)) return IsContainersKind(root);
  return !RootMount(mounts, ours) || std::strcmp(ours, first) != 0;
}

// When process 1 of a pid namespace started (field 22 of its stat): numbers of namespaces are given
// away again, those of containers that ended to the next ones.
inline uint64_t StartOfFirstProcess(const char* stat_file) noexcept {
  const int fd = open(stat_file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  text[got > 0 ? got : 0] = '\0';
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

inline uint32_t Hash(const uint64_t* words, int count) noexcept {
  const uint64_t hash = Fnv1a(std::span(words, static_cast<size_t>(count)));
  const auto folded = static_cast<uint32_t>(hash ^ hash >> 32);
  return folded == 0 ? 1 : folded;
}

}  // namespace place_internal

// The place of process `pid`, 0: of this one. pid_namespace stays 0 when the kernel does not let us
// look at that process; its key means nothing then.
inline Place PlaceOfProcess(int pid) noexcept {
  char process[32] = "/proc/self";
  char root[48] = "/";
  char first[64] = "/proc/1/stat";
  if (pid != 0) {
    std::snprintf(process, sizeof process, "/proc/%d", pid);
    std::snprintf(root, sizeof root, "%s/root/", process);
    std::snprintf(first, sizeof first, "%s/root/proc/1/stat", process);
  }
  char name[64];
  struct stat status {};
  Place place;
  std::snprintf(name, sizeof name, "%s/ns/pid", process);
  if (place_internal::Status(name, &status)) place.pid_namespace = status.st_ino;
  std::snprintf(name, sizeof name, "%s/mountinfo", process);
  if (place.pid_namespace == kFirstPidNamespace && !place_internal::IsContainersRoot(name, root)) {
    return place;
  }
  struct stat top {};
  if (!place_internal::Status(root, &top)) return {};
  const uint64_t words[] = {place.pid_namespace, top.st_dev, top.st_ino,
                            place_internal::StartOfFirstProcess(first)};
  place.key = place_internal::Hash(words, 4);
  return place;
}

// "" for the host, else "-3f9c01d2": what stands behind a name that places do not share.
struct PlaceSuffix {
  char text[16] = "";
};
inline PlaceSuffix SuffixOf(uint32_t key) noexcept {
  PlaceSuffix suffix;
  if (key != 0) std::snprintf(suffix.text, sizeof suffix.text, "-%08x", key);
  return suffix;
}

// The lock of a place's daemon in a segment directory, a POSIX record lock; it holds the daemon's
// pid as text. On the host it is kDaemonLock.
struct DaemonLockName {
  char text[32];
};
inline DaemonLockName DaemonLockNameOf(uint32_t key) noexcept {
  DaemonLockName name;
  std::snprintf(name.text, sizeof name.text, "daemon%s.lock", SuffixOf(key).text);
  return name;
}

// Where the processes of `uid` in a place keep their segments when NANWATCH_DIR says nothing.
struct DefaultDirectory {
  char path[64];
};
inline DefaultDirectory DefaultDirectoryOf(uint32_t uid, uint32_t key) noexcept {
  DefaultDirectory directory;
  std::snprintf(directory.path, sizeof directory.path, "%s%u%s", kDefaultDirPrefix, uid,
                SuffixOf(key).text);
  return directory;
}

}  // namespace nanwatch::wire
