// SPDX-License-Identifier: Apache-2.0
// One launch with all that it needs, and what its result is to be by the slow reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/property/check/guarded_memory.h"
#include "tests/property/check/reference.h"
#include "tests/property/device/cpu_machine.h"

namespace nanwatch::device {

// A tensor of the job: what the kernel is told of it, and what the reference is.
struct JobTensor {
  wire::ElementType type = wire::ElementType::kNone;
  const void* data = nullptr;
  std::vector<int64_t> sizes, strides;  // in elements
  bool is_dense = false;                // told as `numel` elements side by side
  bool is_one_run = false;              // told to be so, besides its dimensions
};

inline JobTensor DenseTensor(wire::ElementType type, const void* data, size_t count) {
  return {type, data, {static_cast<int64_t>(count)}, {1}, true};
}

inline TensorView ViewOf(const JobTensor& tensor) {
  int64_t numel = 1;
  for (const int64_t size : tensor.sizes) numel *= size;
  return {tensor.data,         tensor.type,           static_cast<int32_t>(tensor.sizes.size()),
          tensor.sizes.data(), tensor.strides.data(), numel};
}

inline DeviceTensor Describe(const JobTensor& tensor) {
  const TensorView view = ViewOf(tensor);
  DeviceTensor described;
  std::memset(&described, 0xa5, sizeof(described));  // entries from `ndim` on may hold anything
  described.data = reinterpret_cast<uint64_t>(view.data);
  described.numel = view.numel;
  described.type = static_cast<uint8_t>(view.type);
  described.ndim = static_cast<uint8_t>(tensor.is_dense ? 0 : view.ndim);
  described.one_run = tensor.is_one_run ? 1 : 0;
  for (int d = 0; d < described.ndim; ++d) {
    described.sizes[d] = view.sizes[d];
    described.strides[d] = view.strides[d];
  }
  return described;
}

// What the kernel says of one tensor.
inline void ExpectCounts(const reference::Expected& expected, uint8_t kinds,
                         const TensorCounts& got) {
  const wire::TensorStats& want = expected.stats;
  EXPECT_EQ(kinds, expected.kinds);
  EXPECT_EQ(got.nan, want.nan);
  EXPECT_EQ(got.pos_inf, want.pos_inf);
  EXPECT_EQ(got.neg_inf, want.neg_inf);
  EXPECT_EQ(got.first_bad,
            expected.kinds == 0 ? ~uint64_t{0} : static_cast<uint64_t>(want.first_bad));
  // The reference says 0 where nothing is finite, and so may a tensor of finite parts: then both
  // bounds are 0, and no longer +Inf and -Inf.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool none = got.finite_min == kInfinity && got.finite_max == -kInfinity;
  EXPECT_EQ(none ? 0 : got.finite_min, want.finite_min);
  EXPECT_EQ(none ? 0 : got.finite_max, want.finite_max);
  const double largest = std::max(std::abs(want.finite_min), std::abs(want.finite_max));
  EXPECT_NEAR(got.finite_mean, want.finite_mean, largest * 1e-12);
}

class CheckedLaunch {
 public:
  static constexpr uint64_t kTicket = 0x1234'5678'9abc;
  static constexpr uint8_t kUntouched = 0x5a;

  CheckedLaunch(std::vector<JobTensor> outputs, std::vector<JobTensor> inputs)
      : outputs_(std::move(outputs)), inputs_(std::move(inputs)) {
    ClearResult();
  }

  // As the host does before it gives the slot to a launch: all of it may be left from another one
  // but the ticket.
  void ClearResult() {
    std::memset(&result, kUntouched, sizeof(result));
    result.ticket = 0;
    progress = 0;
  }

  // Fits the short parameter list?
  [[nodiscard]] bool IsFew() const { return outputs_.size() + inputs_.size() <= kFewTensors; }

  template <class Launch>
  [[nodiscard]] Launch Make() {
    Launch launch;
    std::memset(&launch, 0xa5, sizeof(launch));
    launch.head = {.ticket = kTicket,
                   .result = reinterpret_cast<uint64_t>(&result),
                   .scratch = reinterpret_cast<uint64_t>(&scratch),
                   .progress = reinterpret_cast<uint64_t>(&progress),
                   .step_word = reinterpret_cast<uint64_t>(&words),
                   .output_count = static_cast<uint32_t>(outputs_.size()),
                   .input_count = static_cast<uint32_t>(inputs_.size()),
                   .flags = 0,
                   .unused = 0};
    DeviceTensor* next = launch.tensors;
    for (const JobTensor& tensor : outputs_) *next++ = Describe(tensor);
    for (const JobTensor& tensor : inputs_) *next++ = Describe(tensor);
    return launch;
  }

  void Run(uint32_t blocks, std::mt19937_64& random) {
    CpuMemory::misaligned = 0;
    if (IsFew()) {
      RunLaunch(Make<FewLaunch>(), blocks, random);
    } else {
      RunLaunch(Make<ManyLaunch>(), blocks, random);
    }
    EXPECT_EQ(CpuMemory::misaligned, 0);
    EXPECT_EQ(std::memcmp(&scratch, &kZero, sizeof(scratch)), 0);
    EXPECT_EQ(progress, kTicket);
  }

  // Nothing written, wherever one looks.
  void ExpectNoAnswer() const {
    CheckResult untouched;
    std::memset(&untouched, kUntouched, sizeof(untouched));
    untouched.ticket = 0;
    EXPECT_EQ(std::memcmp(&result, &untouched, sizeof(result)), 0) << "something was written";
  }

  // The answer that the reference gives: none if every output is clean.
  void ExpectAsReference() const {
    bool any_bad = false;
    for (const JobTensor& tensor : outputs_) any_bad |= reference::Look(ViewOf(tensor)).kinds != 0;
    if (!any_bad) return ExpectNoAnswer();
    EXPECT_EQ(result.ticket, kTicket);
    EXPECT_EQ(result.hits, 1u);
    EXPECT_EQ(result.step, words.steps);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      SCOPED_TRACE("output " + std::to_string(i));
      const reference::Expected expected = reference::Look(ViewOf(outputs_[i]));
      if (expected.kinds == 0) {
        ExpectCounts(reference::Expected{}, result.output_kinds[i], result.outputs[i]);
      } else {
        ExpectCounts(expected, result.output_kinds[i], result.outputs[i]);
      }
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      SCOPED_TRACE("input " + std::to_string(i));
      ExpectCounts(reference::Look(ViewOf(inputs_[i])), result.input_kinds[i], result.inputs[i]);
    }
  }

  // The same of a step that has had its share of counting.
  void ExpectBrieflyAsReference() const {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      SCOPED_TRACE("output " + std::to_string(i));
      ExpectMet(outputs_[i], /*is_output=*/true, result.output_kinds[i], result.outputs[i]);
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      SCOPED_TRACE("input " + std::to_string(i));
      ExpectMet(inputs_[i], /*is_output=*/false, result.input_kinds[i], result.inputs[i]);
    }
  }

  CheckResult result;
  static constexpr LaunchScratch kZero = {};
  LaunchScratch scratch = {};
  uint64_t progress = 0;
  StepWords words = {41, 0, 0};

 private:
  // Bad or clean it is as ever, and of more than masks if the reference says so.
  static void ExpectMet(const JobTensor& tensor, bool is_output, uint8_t kinds,
                        const TensorCounts& got) {
    const reference::Expected expected = reference::Look(ViewOf(tensor));
    if (is_output && expected.kinds == 0) return ExpectCounts({}, kinds, got);
    int64_t in_memory = 1;
    for (size_t d = 0; d < tensor.sizes.size(); ++d) {
      if (tensor.is_dense || tensor.strides[d] != 0) in_memory *= tensor.sizes[d];
    }
    if (in_memory < int64_t{1} << kCountUnitShift) {
      return ExpectCounts(expected, kinds, got);
    }
    constexpr uint8_t kMore = wire::kHasNan | wire::kHasPosInf;
    EXPECT_EQ(kinds != 0, expected.kinds != 0);
    EXPECT_EQ(kinds & ~expected.kinds, 0);
    EXPECT_EQ((kinds & kMore) != 0, (expected.kinds & kMore) != 0);
    EXPECT_EQ(got.nan, (kinds & wire::kHasNan) != 0 ? 1u : 0u);
    EXPECT_EQ(got.pos_inf, (kinds & wire::kHasPosInf) != 0 ? 1u : 0u);
    EXPECT_EQ(got.neg_inf, (kinds & wire::kHasNegInf) != 0 ? 1u : 0u);
    EXPECT_EQ(got.first_bad, ~uint64_t{0});
    EXPECT_GT(got.finite_min, got.finite_max) << "nothing is said of finite values";
  }

  std::vector<JobTensor> outputs_, inputs_;
};

}  // namespace nanwatch::device
