// SPDX-License-Identifier: Apache-2.0
// A GIL that is a mutex, without a Python.
#include "shim/observe/python/api/gil_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

namespace nanwatch {
namespace {

constexpr int kPatienceMs = 5;
constexpr int kLongMs = 60'000;

std::mutex gil;
thread_local bool has_gil = false;
std::atomic<int> times_released{0};

int thread_state;  // any address

class GilThreadTest : public testing::Test {
 protected:
  void SetUp() override {
    api_.Py_IsInitialized = [] { return 1; };
    api_.Py_IsFinalizing = [] { return 0; };
    api_.PyGILState_GetThisThreadState = []() -> void* { return &thread_state; };
    api_.PyGILState_Check = [] { return has_gil ? 1 : 0; };
    api_.PyGILState_Ensure = [] {
      if (has_gil) return 1;
      gil.lock();
      has_gil = true;
      return 0;
    };
    api_.PyGILState_Release = [](int had) {
      if (had != 0) return;
      has_gil = false;
      gil.unlock();
      ++times_released;
    };
    api_.PyErr_Fetch = [](PyObj** type, PyObj** value, PyObj** traceback) {
      *type = *value = *traceback = nullptr;
    };
    api_.PyErr_Restore = [](PyObj*, PyObj*, PyObj*) {};
  }

  struct Called {
    int times = 0;
    bool had_gil = false;
    std::thread::id thread;
  };
  static void Call(void* context) {
    auto& called = *static_cast<Called*>(context);
    ++called.times;
    called.had_gil = has_gil;
    called.thread = std::this_thread::get_id();
  }

  // A thread that called gives the GIL back last of all, and reads api_ until then.
  static void AwaitReleased(int times) {
    while (times_released.load() < times) std::this_thread::yield();
  }

  PythonApi api_;
};

TEST_F(GilThreadTest, CallsOnTheSameThreadThatHasTheGil) {
  const int had = api_.PyGILState_Ensure();
  Called called;
  EXPECT_TRUE(CallWithGil(api_, kLongMs, &Call, &called));
  EXPECT_EQ(called.thread, std::this_thread::get_id());
  EXPECT_TRUE(called.had_gil);
  api_.PyGILState_Release(had);
}

TEST_F(GilThreadTest, CallsOnAnotherThreadWhereItHasTheGilNot) {
  const int before = times_released.load();
  Called called;
  EXPECT_TRUE(CallWithGil(api_, kLongMs, &Call, &called));
  EXPECT_EQ(called.times, 1);
  EXPECT_NE(called.thread, std::this_thread::get_id());
  EXPECT_TRUE(called.had_gil);
  AwaitReleased(before + 1);
}

// The op's thread holds a lock that the GIL's holder waits for.
TEST_F(GilThreadTest, GivesUpAGilThatIsNotHad) {
  const int before = times_released.load();
  Called called;
  std::mutex of_program;
  std::promise<void> had;
  std::unique_lock<std::mutex> held(of_program);
  std::thread other([&] {
    const int state = api_.PyGILState_Ensure();
    had.set_value();
    { const std::lock_guard<std::mutex> lock(of_program); }
    api_.PyGILState_Release(state);
  });
  had.get_future().wait();
  EXPECT_FALSE(CallWithGil(api_, kPatienceMs, &Call, &called));
  held.unlock();
  other.join();
  // The thread that waited has it in the end, and calls nothing that may be gone.
  AwaitReleased(before + 2);
  EXPECT_EQ(called.times, 0);
}

TEST_F(GilThreadTest, CallsNothingWherePythonEnds) {
  api_.Py_IsFinalizing = [] { return 1; };
  Called called;
  EXPECT_FALSE(CallWithGil(api_, kLongMs, &Call, &called));
  EXPECT_EQ(called.times, 0);
}

}  // namespace
}  // namespace nanwatch
