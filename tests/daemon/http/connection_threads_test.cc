// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/connection_threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

namespace {

// Of this thread's allocations so many more succeed, then one fails; below 0 all succeed.
thread_local int allocations_left = -1;

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace nanwatch {
namespace {

// Jobs that end only when they are let, and how many of them have begun.
class Jobs {
 public:
  ConnectionThreads::Job Make() {
    return [this] {
      std::unique_lock<std::mutex> lock(mutex_);
      ++begun_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return may_end_; });
      ++ended_;
    };
  }
  bool AwaitBegun(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return begun_ >= count; });
  }
  void LetEnd() {
    const std::lock_guard<std::mutex> lock(mutex_);
    may_end_ = true;
    changed_.notify_all();
  }
  int begun() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return begun_;
  }
  int ended() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0;
  int ended_ = 0;
  bool may_end_ = false;
};

TEST(ConnectionThreads, NoJobWaitsForTheEndOfAnother) {
  ConnectionThreads threads(100, 100);
  Jobs first;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(threads.Run(first.Make()));
  ASSERT_TRUE(first.AwaitBegun(3));
  first.LetEnd();
  // Three threads are free or about to be.
  Jobs jobs;
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(threads.Run(jobs.Make()));
  EXPECT_TRUE(jobs.AwaitBegun(64)) << jobs.begun();
  jobs.LetEnd();
  threads.End();
  EXPECT_EQ(jobs.ended(), 64);
}

TEST(ConnectionThreads, BeyondItsBoundsJobsWaitAndThenAreRefused) {
  ConnectionThreads threads(2, 3);
  Jobs jobs;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(threads.Run(jobs.Make()));
  ASSERT_TRUE(jobs.AwaitBegun(2));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(threads.Run(jobs.Make()));
  EXPECT_FALSE(threads.Run(jobs.Make()));
  EXPECT_EQ(jobs.begun(), 2);
  jobs.LetEnd();
  threads.End();
  EXPECT_EQ(jobs.ended(), 5) << "what waits is done before it ends";
  EXPECT_FALSE(threads.Run(jobs.Make()));
}

TEST(ConnectionThreads, WithoutMemoryForAThreadAJobIsRefusedAndNothingWaitsForIt) {
  for (int left = 0; left < 5; ++left) {
    ConnectionThreads threads(2, 3);
    Jobs jobs;
    jobs.LetEnd();
    ConnectionThreads::Job job = jobs.Make();
    bool is_taken = false;
    allocations_left = left;
    EXPECT_NO_THROW(is_taken = threads.Run(std::move(job))) << left;
    allocations_left = -1;
    threads.End();
    EXPECT_EQ(jobs.ended(), is_taken ? 1 : 0) << left;
  }
}

}  // namespace
}  // namespace nanwatch
