// SPDX-License-Identifier: Apache-2.0
// The memory of the event queue. What is mapped stays mapped; a handful of mappings is little.
#include "shim/observe/gpu/queue_memory.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "proto/wire/test_naming.h"

namespace nanwatch {
namespace {

constexpr uint64_t kUsualBytes = uint64_t{32} << 20;

class QueueMemoryTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe(pipe_), 0); }
  void TearDown() override {
    unsetenv(wire::kEnvGpuQueueBytes);
    close(pipe_[0]);
    close(pipe_[1]);
  }
  // Whether the byte may be read: the kernel says so without a fault.
  bool CanRead(const unsigned char* at) {
    const ssize_t written = write(pipe_[1], at, 1);
    EXPECT_TRUE(written == 1 || errno == EFAULT);
    unsigned char byte = 0;
    return written == 1 && read(pipe_[0], &byte, 1) == 1;
  }
  static const QueueMemory* MapOf(const char* asked) {
    setenv(wire::kEnvGpuQueueBytes, asked, 1);
    return MapQueue(QueueBytesForTest());
  }

 private:
  int pipe_[2] = {};
};

TEST_F(QueueMemoryTest, IsAsLargeAsUsualWhereNobodyAsks) {
  const QueueMemory* memory = MapQueue(0);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->bytes, kUsualBytes);
  EXPECT_EQ(memory->begin[0], 0);
  EXPECT_EQ(memory->begin[kUsualBytes - 1], 0);
}

TEST_F(QueueMemoryTest, IsFollowedByAPageThatNobodyMayTouch) {
  for (const char* asked : {"", "4096", "65536"}) {
    const QueueMemory* memory = MapOf(asked);
    ASSERT_NE(memory, nullptr);
    EXPECT_TRUE(CanRead(memory->begin));
    EXPECT_TRUE(CanRead(memory->begin + memory->bytes - 1));
    EXPECT_FALSE(CanRead(memory->begin + memory->bytes)) << asked;
  }
}

TEST_F(QueueMemoryTest, HasTheSizeThatATestAsksForAndLooksLongUsed) {
  const QueueMemory* memory = MapOf("8192");
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->bytes, 8192u);
  EXPECT_EQ(memory->begin[0], 0xff);
  EXPECT_EQ(memory->begin[8191], 0xff);
}

TEST_F(QueueMemoryTest, SizesThatAreNoPowerOfTwoOrOutOfBoundsAreIgnored) {
  for (const char* asked : {"2048", "4095", "5000", "67108864", "-4096", "large", "0"}) {
    const QueueMemory* memory = MapOf(asked);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(memory->bytes, kUsualBytes) << asked;
  }
}

}  // namespace
}  // namespace nanwatch
