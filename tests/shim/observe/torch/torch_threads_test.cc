// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/torch_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <array>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "shim/check/parallel.h"
#include "shim/check/squares.h"

namespace nanwatch {
namespace {

struct Seen {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<int> times = std::vector<int>(64);
};

void Mark(void* context, int64_t begin, int64_t end) {
  auto& seen = *static_cast<Seen*>(context);
  const std::lock_guard<std::mutex> lock(seen.mutex);
  seen.threads.insert(std::this_thread::get_id());
  for (int64_t i = begin; i < end; ++i) ++seen.times[static_cast<size_t>(i)];
}

// The number of threads that had a part; 0: not everything was had once.
size_t ThreadsFor(int64_t blocks) {
  Seen seen;
  ChosenParallelFor()(0, blocks, kParallelGrainBlocks, Mark, &seen);
  for (size_t i = 0; i < seen.times.size(); ++i) {
    if (seen.times[i] != (static_cast<int64_t>(i) < blocks)) return 0;
  }
  return seen.threads.size();
}

class TorchThreads : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(3);
    ReadInTorchThreads();
    RecordThreadTrains();
    ASSERT_NE(ChosenParallelFor(), nullptr);
  }
};

TEST_F(TorchThreads, ShareOutWhatIsToBeRead) {
  EXPECT_EQ(ThreadsFor(64), 3u);
  EXPECT_EQ(ThreadsFor(5), 3u);
  EXPECT_EQ(ThreadsFor(4), 2u);
  EXPECT_EQ(ThreadsFor(2), 1u);
}

TEST_F(TorchThreads, AreAsManyAsTheJobAllows) {
  at::set_num_threads(1);
  EXPECT_EQ(ThreadsFor(64), 1u);
  at::set_num_threads(2);
  EXPECT_EQ(ThreadsFor(64), 2u);
}

#if defined(__x86_64__)
void SeeModes(void* context, int64_t begin, int64_t end) {
  auto& modes = *static_cast<std::array<unsigned, 64>*>(context);
  for (int64_t i = begin; i < end; ++i) modes[static_cast<size_t>(i)] = _mm_getcsr() & ~0x3fu;
}

// The norm of gradients is summed with tiny squares as zero.
TEST_F(TorchThreads, HaveTheJobsFloatingPointModesWhereTheyAreStartedForUs) {
  at::set_num_threads(7);
  const std::vector<float> values(4 * kParallelBytesMin / sizeof(float), 1.0f);
  Squares squares;
  ASSERT_TRUE(SumOfSquares(wire::ElementType::kFloat32, values.data(), values.size(), &squares));
  std::array<unsigned, 64> modes{};
  ChosenParallelFor()(0, 64, kParallelGrainBlocks, SeeModes, &modes);
  EXPECT_EQ(std::set<unsigned>(modes.begin(), modes.end()),
            std::set<unsigned>{_mm_getcsr() & ~0x3fu});
}
#endif

TEST_F(TorchThreads, AreLeftAloneByAThreadThatDoesNotTrain) {
  size_t threads = 0;
  std::thread([&threads] { threads = ThreadsFor(64); }).join();
  EXPECT_EQ(threads, 1u);
}

TEST_F(TorchThreads, AreNotAskedInAForkedChild) {
  ASSERT_EQ(ThreadsFor(64), 3u);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // The pool of the parent would be waited for for ever.
    _exit(ThreadsFor(64) == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace nanwatch
