// SPDX-License-Identifier: Apache-2.0
// A small language for the tests of the checker over the fake driver.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shim/device/device_checker.h"
#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/shim/device/reference_kernels.h"

namespace nanwatch::device {

// What a callback of Poll was told, with a copy of the result.
struct Told {
  int device = 0;
  Finished::Outcome outcome = Finished::Outcome::kClean;
  bool captured = false;
  uint64_t ticket = 0;
  uint64_t hits = 0;
  CheckResult result = {};
  std::optional<ListSums> sums;
  std::vector<Measure> measures;
};

std::vector<uint64_t> TicketsOf(const std::vector<Told>& told);

// Two devices, the first current; every test ends with a look at what must never happen.
class CheckerTest : public ::testing::Test {
 protected:
  CheckerTest();
  void TearDown() override;

  // The checker with `options_`.
  void Make();
  // The same with the device set up, warmed, and nothing in the log that was called for it.
  void MakeReady(int device = 0);

  // A tensor of float32; the values stay where they are until the test ends.
  DeviceTensor Tensor(std::vector<float> values);
  DeviceTensor Clean() { return Tensor({1, 2, 3}); }
  DeviceTensor Bad() { return Tensor({1, kNan, 3}); }

  Enqueued Check(void* stream, const std::vector<DeviceTensor>& outputs,
                 const std::vector<DeviceTensor>& inputs = {}, int device = 0);
  static ListEntry Entry(const DeviceTensor& tensor) {
    return MakeEntry(tensor.data, static_cast<uint64_t>(tensor.numel), tensor.type);
  }
  Enqueued CheckList(void* stream, const std::vector<ListEntry>& gate,
                     const std::vector<ListEntry>& others = {});
  Enqueued CheckBatch(void* stream, const std::vector<BatchEntry>& entries,
                      const std::vector<BatchEntry>& others = {});
  // Checks one tensor, which must succeed; its ticket.
  uint64_t CheckOne(void* stream, const DeviceTensor& output, int device = 0);

  std::vector<Told> Poll();
  // Runs everything, after asking the streams to say how far they are.
  std::vector<Told> RunAndPoll(const std::vector<void*>& streams, int device = 0);

  // launch(stream, n) for n 0 and 1, of which the first runs, and whose context is lost before anybody
  // has asked; launch(stream, 2) is refused then. What is told of the first two.
  template <typename Launch>
  std::vector<Told> LoseTwo(const Launch& launch) {
    void* stream = fake_cuda_new_stream(0);
    for (int n = 0; n < 2; ++n) EXPECT_EQ(launch(stream, n).skip, Skip::kNone);
    EXPECT_EQ(fake_cuda_run(stream, 1), 1u);
    EXPECT_TRUE(Poll().empty());
    fake_cuda_lose_context(0, kCuIllegalAddress);
    EXPECT_NE(launch(stream, 2).skip, Skip::kNone);
    std::vector<Told> told = Poll();
    EXPECT_EQ(told.size(), 2u);
    for (const Told& one : told) EXPECT_EQ(one.outcome, Finished::Outcome::kLost);
    return told;
  }

  uint64_t Skips(Skip skip) const;
  uint64_t Failures(Failure failure) const;
  // The functions called since the log had `since` entries.
  static std::vector<std::string> LogSince(size_t since);

  static constexpr float kNan = __builtin_nanf("");
  static constexpr float kInf = __builtin_inff();

  Driver driver_;
  CheckerOptions options_;
  std::map<int, std::vector<std::byte>> given_memory_;  // by device
  size_t given_bytes_ = 0;                              // 0: as many as the options need
  std::deque<std::vector<float>> values_;
  std::unique_ptr<DeviceChecker> checker_;
};

}  // namespace nanwatch::device
