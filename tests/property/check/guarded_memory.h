// SPDX-License-Identifier: Apache-2.0
// Memory between two pages that may not be touched: one byte read before or after it ends the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

namespace nanwatch {

class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        bytes_((bytes + page_ - 1) / page_ * page_) {
    map_ = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED || mprotect(begin(), bytes_, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  ~GuardedMemory() { munmap(map_, bytes_ + 2 * page_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  [[nodiscard]] char* begin() const { return static_cast<char*>(map_) + page_; }
  [[nodiscard]] char* end() const { return begin() + bytes_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

  // Makes everything from `offset` (whole pages) on untouchable as well, or touchable again.
  void CloseFrom(size_t offset, bool closed) {
    if (mprotect(begin() + offset, bytes_ - offset, closed ? PROT_NONE : PROT_READ | PROT_WRITE) !=
        0) {
      std::abort();
    }
  }

 private:
  size_t page_;
  size_t bytes_;
  void* map_;
};

}  // namespace nanwatch
