// SPDX-License-Identifier: Apache-2.0
// Memory large enough for several threads.
#include <cstring>

#include "shim/check/parallel.h"
#include "tests/fakes/three_threads.h"
#include "tests/property/check/guarded_memory.h"
#include "tests/property/check/level_and_type.h"

namespace nanwatch {
namespace {

void RunInTurn(int64_t begin, int64_t end, int64_t, void (*body)(void*, int64_t, int64_t),
               void* context) {
  const int64_t middle = begin + (end - begin) / 2;
  body(context, begin, middle);
  body(context, middle, end);
}

class ManyThreads : public LevelAndType {
 protected:
  void TearDown() override {
    SetParallelFor(nullptr);
    LevelAndType::TearDown();
  }
};

TEST_P(ManyThreads, FindOneBadValueInLargeMemoryWhereverItLies) {
  SetParallelFor(RunInThreeThreads);
  const size_t count = (kParallelBytesMin + 3 * kParallelBlockBytes) / element_bytes() + 7;
  const size_t bytes = count * element_bytes();
  GuardedMemory memory(bytes);
  char* const data = memory.end() - bytes;
  std::memset(data, 0, bytes);
  g_parts_run = 0;
  EXPECT_FALSE(HasNonFinite(type(), data, count));
  EXPECT_EQ(g_parts_run, 3);
  const size_t parts = bytes / part_bytes();
  const size_t block = kParallelBlockBytes / part_bytes();
  for (const size_t position : {size_t{0}, block - 1, block, 3 * block - 1, parts / 2,
                                parts / 2 + 1, parts - block, parts - 7, parts - 1}) {
    const uint64_t bad = AnyBadWord(), good = 0;
    std::memcpy(data + position * part_bytes(), &bad, part_bytes());
    EXPECT_TRUE(HasNonFinite(type(), data, count)) << "part " << position;
    std::memcpy(data + position * part_bytes(), &good, part_bytes());
  }
}

TEST_P(ManyThreads, AreNotWokenForMemoryOneCoreReadsFaster) {
  SetParallelFor(RunInThreeThreads);
  const size_t count = kParallelBytesMin / element_bytes() - 1;
  GuardedMemory memory(count * element_bytes());
  g_parts_run = 0;
  EXPECT_FALSE(HasNonFinite(type(), memory.begin(), count));
  EXPECT_EQ(g_parts_run, 0);
}

TEST_P(ManyThreads, StopOnceOneOfThemHasFoundABadValue) {
  SetParallelFor(RunInTurn);
  const size_t bytes = kParallelBytesMin + 3 * kParallelBlockBytes;
  GuardedMemory memory(bytes);
  const uint64_t bad = AnyBadWord();
  std::memcpy(memory.begin(), &bad, part_bytes());
  // A scan that goes on after the first block ends the test.
  memory.CloseFrom(kParallelBlockBytes, true);
  EXPECT_TRUE(HasNonFinite(type(), memory.begin(), bytes / element_bytes()));
}

NANWATCH_EVERY_LEVEL_AND_TYPE(ManyThreads);

}  // namespace
}  // namespace nanwatch
