// SPDX-License-Identifier: Apache-2.0
// The payload itself, in this process: who may load, what is kept, what is left.
#include "tools/inject/hook.h"

#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>

#include "tools/inject/mapping.h"

namespace nanwatch {
namespace {

// Stands in for the loader and the library, and remembers.
struct Calls {
  int opened = 0;
  bool refuses = false;
  std::string library, symbol, level, directory, answers;
} calls;

int Entry(const char* level, const char* directory, const char* answers) {
  calls.level = level;
  calls.directory = directory;
  calls.answers = answers;
  errno = ENOMEM;
  return 3;
}
void* Open(const char* library, int flags) {
  EXPECT_EQ(flags, RTLD_NOW);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) % 16, 0u);
  ++calls.opened;
  calls.library = library;
  return calls.refuses ? nullptr : &calls;
}
void* Symbol(void* library, const char* name) {
  EXPECT_EQ(library, &calls);
  calls.symbol = name;
  return reinterpret_cast<void*>(&Entry);
}
char* Error() {
  static char words[] = "no such thing";
  return words;
}

// The hooked function: as many arguments as registers hold.
int64_t Sum(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f) {
  return a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * f;
}
using SumFunction = decltype(&Sum);
SumFunction slot = &Sum;

template <typename Function>
uint64_t Address(Function* function) {
  return reinterpret_cast<uintptr_t>(function);
}

class HookHere : public ::testing::Test {
 protected:
  HookHere() {
    calls = {};
    slot = &Sum;
    functions_.dlopen = Address(&Open);
    functions_.dlsym = Address(&Symbol);
    functions_.dlerror = Address(&Error);
    functions_.errno_location = Address(&__errno_location);
    functions_.slots = {
        {.address = Address(&slot), .function = Address(&Sum), .found = Address(&Sum)}};
  }

  // With the room of every library here, as a tool would find it.
  std::optional<Hook> Place(const LateCall& call = {"/l", "idle", "/d", "/a"}) {
    const Mappings mappings = ReadMappings(getpid());
    Room room(*memory_);
    bool is_program = true;
    for (const Mapping& mapping : mappings) {
      if (mapping.offset != 0 || !mapping.readable || !mapping.path.starts_with('/')) continue;
      if (const auto image = ElfImage::At(*memory_, mapping.begin)) {
        room.Add(*image, mappings, !is_program);
        is_program = false;
      }
    }
    return Hook::Place(*memory_, room, getpid(), functions_, call, 0);
  }
  static int64_t CallIt() { return const_cast<volatile SumFunction&>(slot)(1, 2, 3, 4, 5, 6); }
  static uint32_t State(const Hook& hook) { return hook.Read()->state; }

  std::optional<ProcessMemory> memory_ = ProcessMemory::Open(getpid());
  JobFunctions functions_;
};

TEST_F(HookHere, LoadsOnceAndGoesOnWithTheArgumentsAndTheErrnoOfTheCaller) {
  auto hook = Place();
  ASSERT_TRUE(hook && hook->Set());
  EXPECT_NE(slot, &Sum);
  errno = EDOM;
  EXPECT_EQ(CallIt(), 654321);
  EXPECT_EQ(errno, EDOM);
  EXPECT_EQ(CallIt(), 654321);
  EXPECT_EQ(calls.opened, 1);
  EXPECT_EQ(calls.library + calls.symbol + calls.level + calls.directory + calls.answers,
            "/lnanwatch_entry_attachidle/d/a");
  EXPECT_EQ(State(*hook), uint32_t{NANWATCH_STATE_DONE});
  EXPECT_EQ(hook->Read()->answer, 3);
  hook->Remove();
  EXPECT_EQ(slot, &Sum);
}

TEST_F(HookHere, KeepsTheLoadersWords) {
  calls.refuses = true;
  auto hook = Place();
  ASSERT_TRUE(hook && hook->Set());
  EXPECT_EQ(CallIt(), 654321);
  EXPECT_EQ(State(*hook), uint32_t{NANWATCH_STATE_FAILED});
  EXPECT_STREQ(hook->Read()->error.data(), "no such thing");
  hook->Remove();
}

TEST_F(HookHere, LoadsNothingOnceItWasRemovedThoughAThreadIsInIt) {
  auto hook = Place();
  ASSERT_TRUE(hook && hook->Set());
  const SumFunction entered = slot;
  hook->Remove();
  EXPECT_EQ(entered(1, 2, 3, 4, 5, 6), 654321);
  EXPECT_EQ(calls.opened, 0);
  EXPECT_EQ(State(*hook), uint32_t{NANWATCH_STATE_ABANDONED});
}

TEST_F(HookHere, LoadsNothingInAChildThatWasForked) {
  auto hook = Place();
  ASSERT_TRUE(hook && hook->Set());
  const pid_t child = fork();
  if (child == 0) _exit(CallIt() == 654321 && calls.opened == 0 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(CallIt(), 654321);
  EXPECT_EQ(calls.opened, 1) << "and still does where it was meant to";
  hook->Remove();
}

TEST_F(HookHere, LoadsNothingWhenTheToolIsGone) {
  const pid_t tool = fork();
  if (tool == 0) {
    // Its memory is this test's, the process is not: the parent's are the calls.
    auto parent = ProcessMemory::Open(getppid());
    if (!parent) _exit(1);
    memory_ = std::move(parent);
    const Mappings mappings = ReadMappings(getppid());
    Room room(*memory_);
    bool is_program = true;
    for (const Mapping& mapping : mappings) {
      if (mapping.offset != 0 || !mapping.path.starts_with('/')) continue;
      const auto image = ElfImage::At(*memory_, mapping.begin);
      if (image) room.Add(*image, mappings, !std::exchange(is_program, false));
    }
    auto hook = Hook::Place(*memory_, room, getppid(), functions_, {"/l", "idle", "/d", "/a"}, 0);
    _exit(hook && hook->Set() ? 0 : 1);
  }
  int status = 0;
  waitpid(tool, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_NE(slot, &Sum);
  EXPECT_EQ(CallIt(), 654321);
  EXPECT_EQ(calls.opened, 0);
  // The next tool takes what that one left, and takes the hook away.
  functions_.slots[0].found = Address(slot);
  auto hook = Place();
  ASSERT_TRUE(hook && hook->Set());
  EXPECT_EQ(CallIt(), 654321);
  EXPECT_EQ(calls.opened, 1);
  hook->Remove();
  EXPECT_EQ(slot, &Sum);
}

TEST_F(HookHere, TakesTheSameRoomEachTimeAlsoWithOtherTexts) {
  ASSERT_TRUE(Place().has_value());
  const size_t before = ReadMappings(getpid()).size();
  SumFunction first = nullptr;
  for (int i = 0; i < 200; ++i) {
    auto hook = Place({"/l", "idle", "/d", "/answers-" + std::to_string(i)});
    ASSERT_TRUE(hook && hook->Set()) << i;
    if (i == 0) first = slot;
    EXPECT_EQ(slot, first);
    CallIt();
    EXPECT_EQ(calls.answers, "/answers-" + std::to_string(i));
    hook->Remove();
  }
  EXPECT_EQ(ReadMappings(getpid()).size(), before);
}

TEST_F(HookHere, WaitsForNobodyWhoIsLoadingForAnother) {
  auto hook = Place();
  ASSERT_TRUE(hook.has_value());
  EXPECT_EQ(State(*hook), uint32_t{NANWATCH_STATE_ARMED});
  // As when a tool was killed while a thread loads, and the next one comes.
  static bool placed_again = true;
  static std::function<bool()> place_again;
  place_again = [this] { return Place().has_value(); };
  functions_.dlsym = Address(+[](void*, const char*) -> void* {
    placed_again = place_again();
    return reinterpret_cast<void*>(&Entry);
  });
  hook = Place();
  ASSERT_TRUE(hook && hook->Set());
  CallIt();
  EXPECT_FALSE(placed_again);
  hook->Remove();
}

}  // namespace
}  // namespace nanwatch
