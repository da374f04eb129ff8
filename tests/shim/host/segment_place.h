// SPDX-License-Identifier: Apache-2.0
// A directory for segments that goes with the test, and processes to try things in.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "shim/host/segment_file.h"

namespace nanwatch {

inline constexpr SegmentLayout kTinyLayout{
    .ring_slots = 256, .steps = 8, .stats = 8, .sites = 16, .names = 32, .name_bytes = 1024};

// `directory()` does not exist yet; its parent does, and is removed with everything in it.
class SegmentPlace {
 public:
  SegmentPlace() {
    char made[] = "/dev/shm/nanwatch-test-XXXXXX";
    parent_ = mkdtemp(made);
  }
  ~SegmentPlace() { std::filesystem::remove_all(parent_); }
  SegmentPlace(const SegmentPlace&) = delete;
  SegmentPlace& operator=(const SegmentPlace&) = delete;

  [[nodiscard]] const std::string& parent() const { return parent_; }
  [[nodiscard]] std::string directory() const { return parent_ + "/segments"; }
  [[nodiscard]] std::vector<std::string> Files() const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(directory())) return names;
    for (const auto& entry : std::filesystem::directory_iterator(directory())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  // nullptr and a message in report() when it fails. Leaked, as in the job.
  Segment* Create(const SegmentLayout& layout = kTinyLayout) {
    const std::string path = directory();
    return Segment::Create({.directory = path.c_str(), .layout = layout}, report_);
  }
  [[nodiscard]] const SegmentReport& report() const { return report_; }

 private:
  std::string parent_;
  SegmentReport report_;
};

// Runs `body` in a forked process and gives the text it returns, "" if it died.
template <typename Body>
std::string InChild(Body&& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const std::string text = body();
    const ssize_t wrote = write(ends[1], text.data(), text.size());
    _exit(wrote == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "";
}

// The process that holds the lock on byte 0 of a file, 0 if nobody does. Asked from a process of
// its own, because one's own locks do not show.
inline pid_t LockHolder(const std::string& path) {
  return std::stoi(InChild([&]() -> std::string {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    if (fd < 0 || fcntl(fd, F_GETLK, &lock) != 0) return "-1";
    return std::to_string(lock.l_type == F_UNLCK ? 0 : lock.l_pid);
  }));
}

// The descriptor of this process that is open on `path`, -1 if there is none.
inline int DescriptorOf(const std::string& path) {
  struct stat wanted {};
  if (stat(path.c_str(), &wanted) != 0) return -1;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat found {};
    if (fstat(fd, &found) == 0 && found.st_ino == wanted.st_ino && found.st_dev == wanted.st_dev) {
      return fd;
    }
  }
  return -1;
}

}  // namespace nanwatch
