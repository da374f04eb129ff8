// SPDX-License-Identifier: Apache-2.0
// One launch over a list with all that it needs, and what its result is to be by the slow
// reference.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/property/device/checked_launch.h"

namespace nanwatch::device {

// The tensors, all of them dense, as entries of a list.
inline void PutEntries(const std::vector<JobTensor>& tensors, ListLaunch& launch) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    launch.entries[i] = MakeEntry(reinterpret_cast<uint64_t>(tensors[i].data),
                                  static_cast<uint64_t>(ViewOf(tensors[i]).numel),
                                  static_cast<uint8_t>(tensors[i].type));
  }
}

class CheckedList {
 public:
  static constexpr uint64_t kTicket = CheckedLaunch::kTicket;

  // The first `gate` of the tensors, all of them dense, are the gate.
  CheckedList(std::vector<JobTensor> tensors, size_t gate)
      : tensors_(std::move(tensors)), gate_(gate) {
    ClearResult();
  }
  explicit CheckedList(std::vector<JobTensor> tensors) : CheckedList(tensors, tensors.size()) {}

  void ClearResult() {
    std::memset(&result, CheckedLaunch::kUntouched, sizeof(result));
    result.ticket = 0;
    progress = 0;
  }

  [[nodiscard]] ListLaunch Make() {
    ListLaunch launch;
    std::memset(&launch, 0xa5, sizeof(launch));  // entries beyond the list may hold anything
    launch.head = {.ticket = kTicket,
                   .result = reinterpret_cast<uint64_t>(&result),
                   .scratch = reinterpret_cast<uint64_t>(&scratch),
                   .progress = reinterpret_cast<uint64_t>(&progress),
                   .step_word = reinterpret_cast<uint64_t>(&words),
                   .output_count = static_cast<uint32_t>(gate_),
                   .input_count = static_cast<uint32_t>(tensors_.size() - gate_),
                   .flags = flags,
                   .unused = 0};
    PutEntries(tensors_, launch);
    return launch;
  }

  void Run(uint32_t blocks, std::mt19937_64& random) {
    CpuMemory::misaligned = 0;
    if (sums) {
      RunLaunch(SumLaunch{Make()}, blocks, random);
    } else {
      RunLaunch(Make(), blocks, random);
    }
    EXPECT_EQ(CpuMemory::misaligned, 0);
    EXPECT_EQ(std::memcmp(&scratch, &CheckedLaunch::kZero, sizeof(scratch)), 0);
    EXPECT_EQ(progress, kTicket);
  }

  void ExpectNoAnswer() const {
    ListResult untouched;
    std::memset(&untouched, CheckedLaunch::kUntouched, sizeof(untouched));
    untouched.ticket = 0;
    if (sums) {
      untouched.sums_ticket = result.sums_ticket;
      untouched.sums = result.sums;
    }
    EXPECT_EQ(std::memcmp(&result, &untouched, sizeof(result)), 0) << "something was written";
  }

  // The answer that the reference gives: none if the gate is clean.
  void ExpectAsReference() const {
    bool gate_bad = false;
    std::vector<reference::Expected> expected;
    for (const JobTensor& tensor : tensors_) {
      expected.push_back(reference::Look(ViewOf(tensor)));
      gate_bad |= expected.size() <= gate_ && expected.back().kinds != 0;
    }
    if (!gate_bad) return ExpectNoAnswer();
    EXPECT_EQ(result.ticket, kTicket);
    EXPECT_EQ(result.hits, 1u);
    EXPECT_EQ(result.again, 0u);
    EXPECT_EQ(result.step, words.steps);
    uint32_t counted = 0;
    for (uint32_t i = 0; i < 32 * kListWords; ++i) {
      const bool bad = i < expected.size() && expected[i].kinds != 0;
      EXPECT_EQ(result.IsBad(i), bad) << "entry " << i;
      if ((flags & kKindsOnly) != 0) continue;
      const bool has_rest = tensors_.size() != gate_;
      const auto room =
          static_cast<uint32_t>(i < gate_ && has_rest ? kGateCountedMax : kListCountedMax);
      if (!bad || counted >= room) continue;
      SCOPED_TRACE("entry " + std::to_string(i));
      EXPECT_EQ(result.entry[counted], i);
      ExpectCounts(expected[i], result.kinds[counted], result.counts[counted]);
      ++counted;
    }
    EXPECT_EQ(result.counted, counted);
  }

  uint32_t flags = 0;
  ListResult result;
  LaunchScratch scratch = {};
  uint64_t progress = 0;
  StepWords words = {41, 0, 0};
  bool sums = false;  // by nanwatch_sum_list, which tells its sums besides

 protected:
  std::vector<JobTensor> tensors_;
  size_t gate_;
};

}  // namespace nanwatch::device
