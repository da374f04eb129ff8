// SPDX-License-Identifier: Apache-2.0
// One launch of nanwatch_measure_list, and what the CPU's moments say of the same tensors.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "shim/check/moments.h"
#include "tests/property/device/checked_list.h"

namespace nanwatch::device {

class CheckedMeasureList {
 public:
  static constexpr uint64_t kTicket = CheckedLaunch::kTicket;

  explicit CheckedMeasureList(std::vector<JobTensor> tensors) : tensors_(std::move(tensors)) {
    std::memset(static_cast<void*>(&result), CheckedLaunch::kUntouched, sizeof(result));
  }

  [[nodiscard]] MeasureLaunch Make() {
    MeasureLaunch launch;
    std::memset(static_cast<void*>(&launch), 0xa5, sizeof(launch));
    launch.head = {.ticket = kTicket,
                   .result = reinterpret_cast<uint64_t>(&result),
                   .scratch = reinterpret_cast<uint64_t>(&scratch),
                   .progress = reinterpret_cast<uint64_t>(&progress),
                   .step_word = 0,
                   .output_count = static_cast<uint32_t>(tensors_.size()),
                   .input_count = 0,
                   .flags = 0,
                   .unused = 0};
    PutEntries(tensors_, launch);
    return launch;
  }

  void Run(uint32_t blocks, std::mt19937_64& random) {
    CpuMemory::misaligned = 0;
    RunLaunch(Make(), blocks, random);
    ExpectDone();
  }

  // Compares each with what is kept in its place of `samples`.
  void RunComparison(std::vector<std::vector<double>>& samples, uint32_t blocks,
                     std::mt19937_64& random) {
    CpuMemory::misaligned = 0;
    CompareLaunch launch{Make()};
    launch.head.input_count = launch.head.output_count;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      launch.entries[tensors_.size() + i] =
          MakeEntry(reinterpret_cast<uint64_t>(samples[i].data()), samples[i].size(),
                    static_cast<uint8_t>(wire::ElementType::kFloat64));
    }
    RunLaunch(launch, blocks, random);
    ExpectDone();
  }

  void ExpectDone() const {
    EXPECT_EQ(CpuMemory::misaligned, 0);
    constexpr MeasureScratch kZero = {};
    EXPECT_EQ(std::memcmp(&scratch, &kZero, sizeof(scratch)), 0);
    EXPECT_EQ(progress, kTicket);
    EXPECT_EQ(result.measures_ticket, kTicket);
  }

  void ExpectAsMoments() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      SCOPED_TRACE("entry " + std::to_string(i));
      const JobTensor& tensor = tensors_[i];
      const auto count = static_cast<size_t>(tensor.sizes[0]);
      const Measure& told = result.measures[i];
      Moments moments;
      const bool measured = MomentsOf(tensor.type, tensor.data, count, &moments);
      EXPECT_EQ(measured, IsMeasured(static_cast<uint8_t>(tensor.type)));
      EXPECT_EQ(told.zeros, moments.zeros);
      EXPECT_EQ(told.IsFinite(), std::isfinite(moments.max_abs));
      if (!told.IsFinite()) continue;
      EXPECT_EQ(told.largest, moments.max_abs);
      const double cancelled = 1e-13 * moments.max_abs * static_cast<double>(count);
      if (std::isfinite(moments.sum)) {
        EXPECT_NEAR(told.sum, moments.sum, cancelled);
      }
      if (std::isinf(moments.squares_sum)) {
        EXPECT_EQ(told.squares, moments.squares_sum);
      } else {
        EXPECT_NEAR(told.squares, moments.squares_sum, 1e-12 * moments.squares_sum);
      }
    }
    // What stands behind the list is not the kernel's.
    for (size_t i = tensors_.size(); i < size_t{kMeasuredMax}; ++i) {
      Measure untouched;
      std::memset(&untouched, CheckedLaunch::kUntouched, sizeof(untouched));
      EXPECT_EQ(std::memcmp(&result.measures[i], &untouched, sizeof(untouched)), 0) << i;
    }
  }

  MeasureResult result;
  MeasureScratch scratch = {};
  uint64_t progress = 0;

 private:
  std::vector<JobTensor> tensors_;
};

}  // namespace nanwatch::device
