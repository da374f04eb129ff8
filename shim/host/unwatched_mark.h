// SPDX-License-Identifier: Apache-2.0
// The mark of a process without a segment (shim/entry/mark.h), as the observer's side writes it.
// Header-only: a few system calls, once or twice in a process.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "proto/wire/launch.h"
#include "proto/wire/naming.h"

namespace nanwatch {

namespace unwatched_mark_internal {

inline bool NameMark(char (&name)[128]) noexcept {
  const char* job = secure_getenv(wire::kEnvJob);
  if (job == nullptr || *job == '\0' || std::strchr(job, '/') != nullptr) return false;
  const int length =
      std::snprintf(name, sizeof name, "%.63s.%d%s", job, getpid(), wire::kUnwatchedSuffix);
  return length > 0 && static_cast<size_t>(length) < sizeof name;
}

// What the entry wrote before it started the observer.
inline bool SaysEndedEarly(int directory) noexcept {
  constexpr char kLine[] = "ended_early";
  char name[128];
  char text[sizeof kLine - 1];
  if (!NameMark(name)) return false;
  const int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const ssize_t got = read(fd, text, sizeof text);
  close(fd);
  return got == static_cast<ssize_t>(sizeof text) && std::memcmp(text, kLine, sizeof text) == 0;
}

inline int OpenRunDirectory() noexcept {
  const char* path = secure_getenv(wire::kEnvRunDir);
  if (path == nullptr || *path != '/') return -1;
  return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

}  // namespace unwatched_mark_internal

// Replaces the line of this process's mark in the segment directory. Does nothing without a job.
inline void WriteMark(int directory, const char* line) noexcept {
  char name[128];
  if (!unwatched_mark_internal::NameMark(name)) return;
  const int fd =
      openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  // Where even a line has no room the mark stays empty, which is said of no other reason.
  const ssize_t written = write(fd, line, std::strlen(line));
  (void)written;
  close(fd);
}

inline void RemoveMark(int directory) noexcept {
  char name[128];
  if (unwatched_mark_internal::NameMark(name)) unlinkat(directory, name, 0);
}

// At the end of a process that has no segment, in the directory of the `nanwatch run` around the
// job: says that no op ran, or lets go of the mark where ops ran and were clean. A mark that says
// why the process was not watched stays.
inline void SettleMark(bool ran_ops) noexcept {
  const int directory = unwatched_mark_internal::OpenRunDirectory();
  if (directory < 0) return;
  if (unwatched_mark_internal::SaysEndedEarly(directory)) {
    if (ran_ops) {
      RemoveMark(directory);
    } else {
      WriteMark(directory, "no_ops");
    }
  }
  close(directory);
}

}  // namespace nanwatch
