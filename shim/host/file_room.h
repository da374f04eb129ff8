// SPDX-License-Identifier: Apache-2.0
// How much of a file system a segment may take: never so much that others in it are hurt. A
// container's /dev/shm often has 64 MiB, and PyTorch's own workers die when it is full.
//
// Any thread; nothing allocates or throws.
#pragma once

#include <cstdint>

namespace nanwatch {

struct FileRoom {
  uint64_t free = 0;   // bytes that an ordinary user may take
  uint64_t total = 0;  // bytes; 0: unlimited
};

// Of the file system that an open file or directory lies on. Unlimited when it cannot be asked.
[[nodiscard]] FileRoom RoomOf(int fd) noexcept;

// Whether a segment of `own` bytes leaves enough to others: four times as much as it takes itself,
// and a part of the whole, whoever uses the rest. N segments that all want more end with a share of
// 1 / (N + 4) each.
[[nodiscard]] bool LeavesEnough(const FileRoom& after, uint64_t own) noexcept;

// Makes pages for a range of an open file, rounded out to whole pages. 0 or an errno; then the
// range is as it was.
[[nodiscard]] int MakePages(int fd, uint64_t offset, uint64_t bytes) noexcept;

// Gives back the pages that lie wholly in the range. Nobody may store to it meanwhile.
void GivePagesBack(int fd, uint64_t offset, uint64_t bytes) noexcept;

// Bytes of pages that an open file has.
[[nodiscard]] uint64_t PageBytes(int fd) noexcept;

}  // namespace nanwatch
