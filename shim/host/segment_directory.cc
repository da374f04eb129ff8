// SPDX-License-Identifier: Apache-2.0
#include "shim/host/segment_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "proto/wire/place.h"
#include "shim/host/file_status.h"

namespace nanwatch {
namespace {

using wire::kDirPathMax;

// Absolute, because the job may change its directory, and without slashes at the end, behind which
// a symbolic link would be followed. False if it does not fit.
bool Normalise(const char* wanted, char (&path)[kDirPathMax + 1]) noexcept {
  char whole[PATH_MAX + kDirPathMax + 2] = "";
  if (wanted[0] != '/' && getcwd(whole, PATH_MAX) == nullptr) return false;
  size_t length = strnlen(whole, PATH_MAX);
  if (length > 0) whole[length++] = '/';
  const size_t wanted_length = strnlen(wanted, kDirPathMax * 2);
  if (length + wanted_length >= sizeof whole) return false;
  std::memcpy(whole + length, wanted, wanted_length + 1);
  length += wanted_length;
  while (length > 1 && whole[length - 1] == '/') whole[--length] = '\0';
  if (length > kDirPathMax) return false;
  std::memcpy(path, whole, length + 1);
  return true;
}

bool IsSafe(const char* path, const struct stat& status, SegmentReport& report) noexcept {
  if (status.st_uid != geteuid()) {
    report.Fail(
        "the segment directory %s belongs to user %u, not to you (user %u); remove it, or set "
        "NANWATCH_DIR to a directory of your own",
        path, status.st_uid, geteuid());
    return false;
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    report.Fail(
        "others may write to the segment directory %s (mode %04o); run \"chmod 700 %s\", or set "
        "NANWATCH_DIR to a directory of your own",
        path, status.st_mode & 07777, path);
    return false;
  }
  return true;
}

void ExplainOpenFailure(const char* path, int error, SegmentReport& report) noexcept {
  struct stat status {};
  char buffer[128];
  if (FileStatus(path, &status) == 0 && S_ISLNK(status.st_mode)) {
    report.Fail(
        "the segment directory %s is a symbolic link, which may point elsewhere later; set "
        "NANWATCH_DIR to the directory itself",
        path);
  } else if (error == ENOTDIR) {
    report.Fail("%s is not a directory; set NANWATCH_DIR to one", path);
  } else {
    report.Fail(
        "the segment directory %s cannot be opened: %s; set NANWATCH_DIR to one of your own", path,
        ErrorText(error, buffer, sizeof buffer));
  }
}

}  // namespace

int OpenSegmentDirectory(const char* wanted, char (&path)[kDirPathMax + 1],
                         SegmentReport& report) noexcept {
  wire::DefaultDirectory standard;
  if (wanted == nullptr || wanted[0] == '\0') wanted = secure_getenv(wire::kEnvDir);
  if (wanted == nullptr || wanted[0] == '\0') {
    standard = wire::DefaultDirectoryOf(geteuid(), wire::PlaceOfProcess(0).key);
    wanted = standard.path;
  }
  if (!Normalise(wanted, path)) {
    report.Fail(
        "the path of the segment directory is %zu bytes long (perhaps more as an absolute path), "
        "and %d is the maximum; set NANWATCH_DIR to a shorter one: %.120s...",
        std::strlen(wanted), kDirPathMax, wanted);
    return -1;
  }
  if (mkdir(path, 0700) != 0 && errno != EEXIST) {
    char buffer[128];
    report.Fail("the segment directory %s cannot be created: %s; set NANWATCH_DIR to another", path,
                ErrorText(errno, buffer, sizeof buffer));
    return -1;
  }
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    ExplainOpenFailure(path, errno, report);
    return -1;
  }
  struct stat status {};
  if (FileStatus(fd, &status) != 0 || !IsSafe(path, status, report)) {
    close(fd);
    return -1;
  }
  return fd;
}

}  // namespace nanwatch
