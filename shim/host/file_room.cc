// SPDX-License-Identifier: Apache-2.0
#include "shim/host/file_room.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "shim/host/file_status.h"

namespace nanwatch {
namespace {

constexpr uint64_t kShareForOthers = 4;
constexpr uint64_t kFloorShare = 8;  // of the whole file system
constexpr uint64_t kFloorBytesMax = uint64_t{64} << 20;

uint64_t PageSize() noexcept { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

FileRoom RoomOf(int fd) noexcept {
  struct statvfs status {};
  if (fstatvfs(fd, &status) != 0) return {};
  return {.free = uint64_t{status.f_bavail} * status.f_frsize,
          .total = uint64_t{status.f_blocks} * status.f_frsize};
}

bool LeavesEnough(const FileRoom& after, uint64_t own) noexcept {
  if (after.total == 0) return true;
  const uint64_t floor = std::min(after.total / kFloorShare, kFloorBytesMax);
  return after.free >= floor && after.free / kShareForOthers >= own;
}

int MakePages(int fd, uint64_t offset, uint64_t bytes) noexcept {
  const uint64_t page = PageSize();
  const uint64_t begin = offset / page * page;
  const uint64_t end = (offset + bytes + page - 1) / page * page;
  int error = 0;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin));
  } while (error == EINTR);
  return error;
}

void GivePagesBack(int fd, uint64_t offset, uint64_t bytes) noexcept {
  const uint64_t page = PageSize();
  const uint64_t begin = (offset + page - 1) / page * page;
  const uint64_t end = (offset + bytes) / page * page;
  if (begin >= end) return;
  (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                  static_cast<off_t>(end - begin));
}

uint64_t PageBytes(int fd) noexcept {
  struct stat status {};
  return FileStatus(fd, &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * 512 : 0;
}

}  // namespace nanwatch
