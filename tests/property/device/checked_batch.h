// SPDX-License-Identifier: Apache-2.0
// One launch over a batch with all that it needs, and what its result is to be by the slow
// reference.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/property/device/checked_launch.h"

namespace nanwatch::device {

class CheckedBatch {
 public:
  static constexpr uint64_t kTicket = CheckedLaunch::kTicket;

  // All of them dense.
  explicit CheckedBatch(std::vector<JobTensor> entries, std::vector<JobTensor> others = {})
      : tensors_(std::move(entries)), entries_(tensors_.size()) {
    tensors_.insert(tensors_.end(), others.begin(), others.end());
    std::memset(&result, CheckedLaunch::kUntouched, sizeof(result));
    result.ticket = 0;
  }

  [[nodiscard]] BatchLaunch Make() {
    BatchLaunch launch;
    std::memset(&launch, 0xa5, sizeof(launch));  // what is behind the tensors may be anything
    launch.head = {.ticket = kTicket,
                   .result = reinterpret_cast<uint64_t>(&result),
                   .scratch = reinterpret_cast<uint64_t>(&scratch),
                   .progress = reinterpret_cast<uint64_t>(&progress),
                   .step_word = reinterpret_cast<uint64_t>(&words),
                   .output_count = static_cast<uint32_t>(entries_),
                   .input_count = static_cast<uint32_t>(tensors_.size() - entries_),
                   .flags = flags,
                   .unused = 0};
    launch.phase = phase;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      launch.entries[i] = MakeEntry(reinterpret_cast<uint64_t>(tensors_[i].data),
                                    static_cast<uint64_t>(ViewOf(tensors_[i]).numel),
                                    static_cast<uint8_t>(tensors_[i].type));
    }
    PlanBatch(launch);
    return launch;
  }

  void Run(uint32_t blocks, std::mt19937_64& random) {
    CpuMemory::misaligned = 0;
    progress = 0;
    RunLaunch(Make(), blocks, random);
    EXPECT_EQ(CpuMemory::misaligned, 0);
    ExpectZeroScratch();
    EXPECT_EQ(progress, kTicket);
  }

  void ExpectZeroScratch() const {
    EXPECT_EQ(std::memcmp(&scratch, &CheckedLaunch::kZero, sizeof(scratch)), 0);
  }

  [[nodiscard]] bool Answered() const { return result.ticket != 0; }

  void ExpectNoAnswer() const {
    BatchResult untouched;
    std::memset(&untouched, CheckedLaunch::kUntouched, sizeof(untouched));
    untouched.ticket = 0;
    EXPECT_EQ(std::memcmp(&result, &untouched, sizeof(result)), 0) << "something was written";
  }

  // The answer that the reference gives where every entry is read in full: none unless one holds
  // more than masks.
  void ExpectAsReference() const {
    bool is_hit = false;
    const std::vector<reference::Expected> expected = Look();
    for (size_t i = 0; i < entries_; ++i) is_hit |= IsMore(expected[i]);
    if (!is_hit) return ExpectNoAnswer();
    ExpectAnswer(expected);
  }
  // The same where the launch has met something.
  void ExpectAnswer() const { ExpectAnswer(Look()); }

  uint32_t flags = 0;
  uint32_t phase = 0;
  BatchResult result;
  LaunchScratch scratch = {};
  uint64_t progress = 0;
  StepWords words = {41, 0, 0};

 private:
  static bool IsMore(const reference::Expected& expected) {
    return (expected.kinds & (wire::kHasNan | wire::kHasPosInf)) != 0;
  }
  [[nodiscard]] std::vector<reference::Expected> Look() const {
    std::vector<reference::Expected> expected;
    for (const JobTensor& tensor : tensors_) expected.push_back(reference::Look(ViewOf(tensor)));
    return expected;
  }

  void ExpectAnswer(const std::vector<reference::Expected>& expected) const {
    EXPECT_EQ(result.ticket, kTicket);
    EXPECT_EQ(result.hits, 1u);
    EXPECT_EQ(result.again, 0u);
    EXPECT_EQ(result.step, words.steps);
    EXPECT_EQ(result.brief, 0u);
    for (uint32_t i = 0; i < tensors_.size(); ++i) {
      EXPECT_EQ(result.KindsOf(i), expected[i].kinds) << "tensor " << i;
      EXPECT_TRUE(result.WasReadInFull(i)) << "tensor " << i;
    }
    std::vector<uint32_t> counted;
    size_t of_entries = 0;
    for (const bool masks : {false, true}) {
      for (uint32_t i = 0; i < tensors_.size(); ++i) {
        if (expected[i].kinds == 0 || IsMore(expected[i]) == masks) continue;
        if (counted.size() == kBatchCountedMax) continue;
        if (i < entries_ && of_entries == kBatchEntriesCounted) continue;
        counted.push_back(i);
        of_entries += i < entries_ ? 1 : 0;
      }
    }
    ASSERT_EQ(result.counted, counted.size());
    for (size_t at = 0; at < counted.size(); ++at) {
      SCOPED_TRACE("tensor " + std::to_string(counted[at]));
      EXPECT_EQ(result.tensor[at], counted[at]);
      EXPECT_EQ(result.CountsOf(counted[at]), &result.counts[at]);
      ExpectCounts(expected[counted[at]], result.kinds[at], result.counts[at]);
    }
  }

  std::vector<JobTensor> tensors_;
  size_t entries_;
};

}  // namespace nanwatch::device
