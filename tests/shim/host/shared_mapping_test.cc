// SPDX-License-Identifier: Apache-2.0
#include "shim/host/shared_mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace nanwatch {
namespace {

constexpr size_t kBytes = 1 << 16;

// Memory that another process can map, as torch makes it: a file without a name.
class SharedMemory {
 public:
  SharedMemory() : fd_(memfd_create("nanwatch-test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, kBytes), 0);
  }
  ~SharedMemory() { close(fd_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] const char* Map(int how = MAP_SHARED) const {
    return static_cast<const char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, how, fd_, 0));
  }

 private:
  int fd_;
};

TEST(SharedMapping, IsTheSameWhereverTheFileIsMapped) {
  const SharedMemory memory;
  const char* here = memory.Map();
  const uint64_t file = SharedFileAt(here);
  EXPECT_NE(file, 0u);
  EXPECT_EQ(SharedFileAt(here + kBytes - 1), file);
  EXPECT_EQ(SharedFileAt(memory.Map()), file) << "a second mapping";
  const pid_t child = fork();
  if (child == 0) _exit(SharedFileAt(memory.Map()) == file ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "in another process";
}

TEST(SharedMapping, TellsFilesApart) {
  const SharedMemory first;
  const SharedMemory second;
  EXPECT_NE(SharedFileAt(first.Map()), SharedFileAt(second.Map()));
}

TEST(SharedMapping, MemoryOfThisProcessAloneIsNoFile) {
  const SharedMemory memory;
  const std::vector<char> heap(100);
  const int on_stack = 0;
  EXPECT_EQ(SharedFileAt(memory.Map(MAP_PRIVATE)), 0u);
  EXPECT_EQ(SharedFileAt(heap.data()), 0u);
  EXPECT_EQ(SharedFileAt(&on_stack), 0u);
  EXPECT_EQ(SharedFileAt(nullptr), 0u);
}

// The list is longer than what is read of it at once.
TEST(SharedMapping, FindsOneAmongThousands) {
  const SharedMemory wanted;
  std::vector<SharedMemory> others(500);
  std::vector<const char*> mapped;
  for (const SharedMemory& other : others) mapped.push_back(other.Map());
  const char* here = wanted.Map();
  const uint64_t file = SharedFileAt(here);
  EXPECT_NE(file, 0u);
  for (const char* other : mapped) EXPECT_NE(SharedFileAt(other), file);
  for (const char* other : mapped) EXPECT_NE(SharedFileAt(other), 0u);
}

}  // namespace
}  // namespace nanwatch
