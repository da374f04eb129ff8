// SPDX-License-Identifier: Apache-2.0
// Threads that launch, one that is the GPU and one that polls, all at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using Outcome = Finished::Outcome;

class ManyThreads : public CheckerTest {
 protected:
  static constexpr int kThreads = 4;
  static constexpr size_t kOps = 3000;  // of each thread

  struct Launched {
    uint64_t ticket;
    bool bad;
  };

  void TearDown() override {
    fake_cuda_set_logging(1);
    CheckerTest::TearDown();
  }

  // Starts the GPU and the poller, runs `body(thread)` in kThreads threads, ends when all is told.
  template <class Body>
  void Run(const std::vector<void*>& streams, const Body& body) {
    fake_cuda_set_logging(0);
    std::atomic<bool> stop{false};
    std::thread gpu([&] {
      while (!stop.load()) {
        if (fake_cuda_run_all() == 0) std::this_thread::yield();
      }
    });
    std::thread poller([&] {
      while (!stop.load()) PollOnce();
    });
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        fake_cuda_set_device(0);
        body(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    stop.store(true);
    gpu.join();
    poller.join();
    for (void* stream : streams) checker_->Flush(0, static_cast<CuStream>(stream));
    fake_cuda_run_all();
    PollOnce();
  }

  // Only one thread is ever inside the callback.
  void PollOnce() {
    checker_->Poll(
        [](void* context, const Finished& finished) {
          auto* test = static_cast<ManyThreads*>(context);
          test->order_.push_back(finished.ticket);
          if (!test->told_.emplace(finished.ticket, finished.outcome).second) ++test->told_twice_;
          if (finished.result != nullptr && finished.result->outputs[0].nan != 1) ++test->torn_;
        },
        this);
  }

  // Every op is checked in the end: what finds no room tries again.
  std::vector<Launched> Work(void* stream, const DeviceTensor& clean, const DeviceTensor& bad) {
    std::vector<Launched> launched;
    launched.reserve(kOps);
    while (launched.size() < kOps) {
      const bool is_bad = launched.size() % 7 == 3;
      const Enqueued enqueued =
          checker_->Enqueue({static_cast<CuStream>(stream), 0, {is_bad ? &bad : &clean, 1}, {}});
      if (enqueued.skip == Skip::kNone) {
        launched.push_back({enqueued.first_ticket, is_bad});
      } else {
        dropped_.fetch_add(1);
        std::this_thread::yield();
      }
    }
    return launched;
  }

  void ExpectEachToldOnce(const std::vector<Launched> (&launched)[kThreads]) {
    size_t launches = 0;
    for (const std::vector<Launched>& of_thread : launched) {
      launches += of_thread.size();
      for (const Launched& one : of_thread) {
        const auto told = told_.find(one.ticket);
        ASSERT_NE(told, told_.end()) << one.ticket;
        ASSERT_EQ(told->second, one.bad ? Outcome::kBad : Outcome::kClean) << one.ticket;
      }
    }
    EXPECT_EQ(told_.size(), launches);
    EXPECT_EQ(told_twice_, 0);
    EXPECT_EQ(torn_, 0);
    const CheckerCounters counters = checker_->Counters();
    EXPECT_EQ(counters.launches, launches);
    const uint64_t dropped = Skips(Skip::kNoSlot) + Skips(Skip::kStreamNoSlot);
    EXPECT_EQ(dropped, dropped_.load());
    EXPECT_EQ(launches, uint64_t{kThreads} * kOps);
  }

  std::vector<uint64_t> order_;
  std::map<uint64_t, Outcome> told_;
  int told_twice_ = 0;
  int torn_ = 0;
  std::atomic<uint64_t> dropped_{0};
};

TEST_F(ManyThreads, OnStreamsOfTheirOwnHaveEachLaunchToldOnceAndInOrder) {
  MakeReady();
  const DeviceTensor clean = Clean();
  const DeviceTensor bad = Bad();
  std::vector<void*> streams;
  streams.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) streams.push_back(fake_cuda_new_stream(0));
  std::vector<Launched> launched[kThreads];
  Run(streams, [&](int i) { launched[i] = Work(streams[i], clean, bad); });
  ExpectEachToldOnce(launched);

  std::map<uint64_t, size_t> place;
  for (size_t i = 0; i < order_.size(); ++i) place[order_[i]] = i;
  for (const std::vector<Launched>& of_thread : launched) {
    EXPECT_TRUE(std::is_sorted(
        of_thread.begin(), of_thread.end(),
        [&](const Launched& a, const Launched& b) { return place[a.ticket] < place[b.ticket]; }));
  }
}

// The order of their tickets is not that of their launches: a slot that is taken for finished too
// early shows as a result told twice, torn, or under a wrong name.
TEST_F(ManyThreads, OnOneStreamHaveEachLaunchToldOnce) {
  options_.slots = 8;
  MakeReady();
  const DeviceTensor clean = Clean();
  const DeviceTensor bad = Bad();
  void* stream = fake_cuda_new_stream(0);
  std::vector<Launched> launched[kThreads];
  Run({stream}, [&](int i) { launched[i] = Work(stream, clean, bad); });
  ExpectEachToldOnce(launched);
}

TEST_F(ManyThreads, ThatSeeADeviceFirstSetItUpOnce) {
  Make();
  const DeviceTensor clean = Clean();
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      fake_cuda_set_device(0);
      EXPECT_EQ(Check(nullptr, {clean}).skip, Skip::kStarting);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_cuda_calls("cuModuleLoadDataEx"), 1u);
  EXPECT_EQ(fake_cuda_calls("cuMemAlloc_v2"), 1u);
  EXPECT_EQ(fake_cuda_calls("cuStreamCreate"), 1u);
}

}  // namespace
}  // namespace nanwatch::device
