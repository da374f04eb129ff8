// SPDX-License-Identifier: Apache-2.0
#include "shim/emit/write_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace nanwatch {
namespace {

TEST(WriteGate, KeepsEverybodyOutWhileClosed) {
  constexpr int kThreads = 3;
  WriteGate gate;
  // Written only inside, two words that are equal whenever nobody is inside.
  std::atomic<uint64_t> first{0};
  std::atomic<uint64_t> second{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      while (!stop) {
        const WriteGate::Pass pass(gate);
        first.fetch_add(1, std::memory_order_relaxed);
        second.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (int closed = 0; closed < 200 || first.load() < 100'000;) {
    closed += gate.WhileClosed(1000,
                               [&] {
                                 const uint64_t before = first.load();
                                 EXPECT_EQ(second.load(), before);
                                 for (int i = 0; i < 1000; ++i)
                                   std::atomic_signal_fence(std::memory_order_seq_cst);
                                 EXPECT_EQ(first.load(), before) << "somebody came in";
                               })
                  ? 1
                  : 0;
    if (HasFailure()) break;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first.load(), second.load());
}

TEST(WriteGate, HoldsAThreadThatComesWhileItIsClosedUntilItOpens) {
  for (int round = 0; round < 20; ++round) {
    WriteGate gate;
    std::atomic<bool> ask{false};
    std::atomic<bool> before{false};
    std::atomic<bool> inside{false};
    std::thread visitor([&] {
      while (!ask) std::this_thread::yield();
      before = true;
      gate.Enter();
      inside = true;
      gate.Leave();
    });
    EXPECT_TRUE(gate.WhileClosed(0, [&] {
      ask = true;
      while (!before) std::this_thread::yield();
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
      while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
      EXPECT_FALSE(inside);
    }));
    visitor.join();
    EXPECT_TRUE(inside);
  }
}

TEST(WriteGate, GivesUpOnAThreadThatNeverComesOut) {
  WriteGate gate;
  gate.Enter();
  bool called = false;
  EXPECT_FALSE(gate.WhileClosed(10, [&] { called = true; }));
  EXPECT_FALSE(called);
  gate.Enter();  // open again
  gate.Leave();
  gate.Leave();
  EXPECT_TRUE(gate.WhileClosed(0, [&] { called = true; }));
  EXPECT_TRUE(called);
}

}  // namespace
}  // namespace nanwatch
