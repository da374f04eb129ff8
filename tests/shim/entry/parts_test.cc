// SPDX-License-Identifier: Apache-2.0
// The entry's pure functions, and the watch with a short patience.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

extern "C" {
#include "shim/entry/process_filter.h"
#include "shim/entry/torch_version.h"
}
#include "tests/shim/entry/loader_watch_probe.h"

namespace nanwatch::test {
namespace {

TEST(TorchVersion, IsReadFromAPackagesVersionFile) {
  torch_version version;
  ASSERT_TRUE(
      torch_version_from_python("from typing import Optional\n\n__all__ = ['__version__', "
                                "'debug']\n__version__ = '2.11.0+cu130'\n",
                                &version));
  EXPECT_STREQ(version.full, "2.11.0+cu130");
  EXPECT_STREQ(version.minor, "2.11");
}

TEST(TorchVersion, MayBeAnnotatedAndInDoubleQuotes) {
  torch_version version;
  ASSERT_TRUE(torch_version_from_python("__version__: str = \"2.7.1a0+git12ab\"\n", &version));
  EXPECT_STREQ(version.full, "2.7.1a0+git12ab");
  EXPECT_STREQ(version.minor, "2.7");
}

TEST(TorchVersion, IsNotGuessedFromOtherText) {
  torch_version version;
  for (const char* text :
       {"", "debug = '2.11.0'\n", "__version__ = 2\n", "__version__ = ''\n",
        "__version__ = 'two'\n'2.11.0'", "x__version__ = '2.11.0'\n", "__version__ = '2.'\n"}) {
    EXPECT_FALSE(torch_version_from_python(text, &version)) << text;
  }
  for (const char* text : {"", "main", "2", "2.", ".11", "v2.11", "99999999999.99999999"}) {
    EXPECT_FALSE(torch_version_from_text(text, &version)) << text;
  }
}

TEST(TorchVersion, OfAbsurdLengthIsRefused) {
  torch_version version;
  EXPECT_FALSE(torch_version_from_text(("2.11.0+" + std::string(200, 'a')).c_str(), &version));
}

bool IsFiltered(std::string_view arguments) {
  return command_line_is_filtered(arguments.data(), arguments.size());
}
using namespace std::string_view_literals;

TEST(ProcessFilter, IsACompileWorkerAsEveryTorchStartsIt) {
  EXPECT_TRUE(IsFiltered(
      "/usr/bin/python\0/x/torch/_inductor/compile_worker/__main__.py\0--workers=4\0"sv));
  EXPECT_TRUE(IsFiltered("python\0-m\0torch._inductor.compile_worker\0"sv));
  EXPECT_TRUE(IsFiltered(
      "worker\0--pickler=torch._inductor.compile_worker.subproc_pool.SubprocPickler\0"sv));
}

TEST(ProcessFilter, IsTheResourceTracker) {
  EXPECT_TRUE(
      IsFiltered("python\0-c\0from multiprocessing.resource_tracker import main;main(4)\0"sv));
}

TEST(ProcessFilter, IsNoProgramThatOnlyMentionsOne) {
  EXPECT_FALSE(IsFiltered("python\0train.py\0--log=torch._inductor.compile_worker\0"sv));
  EXPECT_FALSE(IsFiltered("python\0-c\0import multiprocessing.resource_tracker\0"sv));
  EXPECT_FALSE(
      IsFiltered("python\0-c\0from multiprocessing.spawn import spawn_main; spawn_main()\0"sv));
  EXPECT_FALSE(IsFiltered(""sv));
}

TEST(Sign, IsTorchInTheLastTwoComponentsOfAName) {
  for (const char* name :
       {"libtorch_global_deps.so", "/a/torch/_C.cpython-311-x86_64-linux-gnu.so", "torch/_C.so",
        "/x/lib/libtorch_cpu.so.2.6", "/opt/libtorch/libfoo.so"}) {
    EXPECT_TRUE(loader_watch_probe_is_sign(name)) << name;
  }
  for (const char* name :
       {"", "libm.so.6", "/home/me/torch/lib/libssl.so", "/torch/env/lib/x.so", "/", "//"}) {
    EXPECT_FALSE(loader_watch_probe_is_sign(name)) << name;
  }
  EXPECT_FALSE(loader_watch_probe_is_sign(nullptr));
}

bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(Watch, GivesUpWithoutTorchAndStartsAnewAtTheNextSign) {
  loader_watch_probe_begin(/*patience_ms=*/20);
  loader_watch_probe_sign();
  EXPECT_TRUE(Eventually([] { return !loader_watch_probe_is_watching(); }));
  EXPECT_EQ(loader_watch_probe_times_found(), 0);

  loader_watch_probe_begin(/*patience_ms=*/60'000);  // no pause between the next lines ends it
  loader_watch_probe_sign();
  EXPECT_TRUE(loader_watch_probe_is_watching());
  loader_watch_probe_open(NANWATCH_TEST_PROGRAMS "/libtorch_cpu.so");
  EXPECT_TRUE(Eventually([] { return loader_watch_probe_times_found() == 1; }));
  loader_watch_probe_sign();
  EXPECT_EQ(loader_watch_probe_times_found(), 1);
}

TEST(ForkGate, LetsNobodyInWhileAForkIsOnItsWay) {
  ASSERT_TRUE(gate_probe_enter());
  gate_probe_leave();
  gate_probe_close();
  EXPECT_FALSE(gate_probe_enter());
  gate_probe_close();  // two threads may fork at once
  gate_probe_open();
  EXPECT_FALSE(gate_probe_enter());
  gate_probe_open();
  EXPECT_TRUE(gate_probe_enter());
  gate_probe_leave();
}

TEST(ForkGate, KeepsTheWatchAndAForkApart) {
  std::atomic<bool> forking{false}, over{false};
  std::atomic<int> entered{0}, met{0};
  std::thread watch([&] {
    while (!over) {
      if (!gate_probe_enter()) continue;
      if (forking) ++met;
      ++entered;
      if (forking) ++met;
      gate_probe_leave();
    }
  });
  EXPECT_TRUE(Eventually([&] { return entered > 0; }));
  int forks = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (forks < 2000 && (forks == 0 || std::chrono::steady_clock::now() < end)) {
    gate_probe_close();
    // A fork goes on without the gate where the other thread gets no processor to leave it.
    if (gate_probe_is_empty()) {
      ++forks;
      forking = true;
      std::this_thread::yield();
      forking = false;
    }
    gate_probe_open();
  }
  over = true;
  watch.join();
  EXPECT_EQ(met, 0);
}

TEST(ForkGate, MakesAForkWaitButNotForGood) {
  ASSERT_TRUE(gate_probe_enter());
  const auto begin = std::chrono::steady_clock::now();
  gate_probe_close();  // returns though nobody leaves: 2000 pauses of 0.1 ms
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(200));
  gate_probe_open();
  gate_probe_leave();
}

}  // namespace
}  // namespace nanwatch::test
