// SPDX-License-Identifier: Apache-2.0
// Which signals threads of our own take, and that the caller's stay as they were.
#include "shim/host/quiet_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <future>
#include <thread>

namespace nanwatch {
namespace {

sigset_t BlockedHere() {
  sigset_t blocked;
  sigemptyset(&blocked);
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return blocked;
}

void ExpectFaultsAlone(const sigset_t& blocked) {
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    EXPECT_EQ(sigismember(&blocked, fault), 0) << fault;
  for (const int other : {SIGINT, SIGTERM, SIGCHLD, SIGALRM, SIGUSR1, SIGPROF, SIGRTMAX})
    EXPECT_EQ(sigismember(&blocked, other), 1) << other;
}

TEST(QuietThread, TakesNoSignalsButThoseOfItsFaults) {
  std::promise<sigset_t> blocked;
  ASSERT_TRUE(StartQuietThread(
      [](void* context) -> void* {
        static_cast<std::promise<sigset_t>*>(context)->set_value(BlockedHere());
        return nullptr;
      },
      &blocked));
  ExpectFaultsAlone(blocked.get_future().get());
}

TEST(QuietThread, IsOneThatAnybodyStartsMeanwhile) {
  sigset_t blocked;
  std::thread thread;
  {
    const QuietSignals quiet;
    thread = std::thread([&blocked] { blocked = BlockedHere(); });
  }
  thread.join();
  ExpectFaultsAlone(blocked);
}

TEST(QuietThread, LeavesTheCallersSignalsAsTheyWere) {
  sigset_t own;
  sigset_t before;
  sigemptyset(&own);
  sigaddset(&own, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &own, &before);
  EXPECT_TRUE(StartQuietThread([](void*) -> void* { return nullptr; }, nullptr));
  const sigset_t after = BlockedHere();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(sigismember(&after, SIGUSR2), 1);
  EXPECT_EQ(sigismember(&after, SIGUSR1), 0);
  EXPECT_EQ(sigismember(&after, SIGTERM), 0);
}

}  // namespace
}  // namespace nanwatch
