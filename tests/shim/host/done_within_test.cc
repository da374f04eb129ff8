// SPDX-License-Identifier: Apache-2.0
// What ends a wait for another thread, and what does not.
#include "shim/host/done_within.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace nanwatch {
namespace {

TEST(DoneWithin, AsksOnceOfWhatIsDone) {
  int asked = 0;
  EXPECT_TRUE(DoneWithin(1000, [&asked] { return ++asked > 0; }));
  EXPECT_EQ(asked, 1);
}

TEST(DoneWithin, AsksOftenHoweverLongAnAnswerTakes) {
  // As where the machine stands still: time is over after the first.
  int asked = 0;
  EXPECT_TRUE(DoneWithin(20, [&asked] {
    for (const uint64_t until = MonotonicNs() + 21'000'000; MonotonicNs() < until;) {
    }
    return ++asked == 3;
  }));
}

TEST(DoneWithin, Ends) {
  EXPECT_FALSE(DoneWithin(3, [] { return false; }));
}

TEST(DoneByThread, WaitsForOneThatComputes) {
  std::atomic<int> thread{0};
  std::atomic<bool> done{false};
  std::thread worker([&thread, &done] {
    thread = NumberOfThisThread();
    for (const uint64_t until = MonotonicNs() + 100'000'000; MonotonicNs() < until;) {
    }
    done = true;
  });
  while (thread == 0) {
  }
  EXPECT_TRUE(DoneByThread(5, thread, [&done] { return done.load(); }));
  worker.join();
}

TEST(DoneByThread, LeavesOneThatWaitsForALock) {
  std::atomic<int> thread{0};
  std::mutex mutex;
  mutex.lock();
  std::thread worker([&thread, &mutex] {
    thread = NumberOfThisThread();
    const std::lock_guard<std::mutex> lock(mutex);
  });
  while (thread == 0 || CanGoOn(thread)) {
  }
  const uint64_t began = MonotonicNs();
  EXPECT_FALSE(DoneByThread(5, thread, [] { return false; }));
  EXPECT_LT(MonotonicNs() - began, 40 * 5'000'000u) << "as long as for one that computes";
  mutex.unlock();
  worker.join();
}

TEST(DoneByThread, LeavesOneThatIsNotKnownOrWasLeftBehindByAFork) {
  std::atomic<int> none{0};
  EXPECT_FALSE(DoneByThread(1, none, [] { return false; }));
  std::atomic<int> thread{0};
  std::atomic<bool> ends{false};
  std::thread worker([&thread, &ends] {
    thread = NumberOfThisThread();
    while (!ends) {
    }
  });
  while (thread == 0) {
  }
  EXPECT_TRUE(CanGoOn(thread));
  const pid_t child = fork();
  if (child == 0) _exit(CanGoOn(thread) ? 1 : 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ends = true;
  worker.join();
}

TEST(CanGoOn, ReadsAThreadWhoseNameHasBrackets) {
  ASSERT_EQ(pthread_setname_np(pthread_self(), ") S (a) b"), 0);
  EXPECT_TRUE(CanGoOn(NumberOfThisThread()));
}

}  // namespace
}  // namespace nanwatch
