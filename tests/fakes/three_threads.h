// SPDX-License-Identifier: Apache-2.0
// A ParallelFor (shim/check/parallel.h) of three threads and uneven parts.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace nanwatch {

inline std::atomic<int> g_parts_run{0};

inline void RunInThreeThreads(int64_t begin, int64_t end, int64_t grain,
                              void (*body)(void*, int64_t, int64_t), void* context) {
  ASSERT_GE(grain, 1);
  const int64_t first = begin + (end - begin) / 4;
  const int64_t second = begin + (end - begin) / 2;
  const auto part = [&](int64_t from, int64_t to) {
    ++g_parts_run;
    body(context, from, to);
  };
  std::thread a(part, begin, first), b(part, first, second);
  part(second, end);
  a.join();
  b.join();
}

}  // namespace nanwatch
