// SPDX-License-Identifier: Apache-2.0
// One launch of nanwatch_sum_list: what a check of the list answers, and what its sums are to be by
// the slow reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/property/device/checked_list.h"

namespace nanwatch::device {

class CheckedSumList : public CheckedList {
 public:
  CheckedSumList(std::vector<JobTensor> tensors, size_t gate)
      : CheckedList(std::move(tensors), gate) {
    sums = true;
  }
  explicit CheckedSumList(const std::vector<JobTensor>& tensors)
      : CheckedSumList(tensors, tensors.size()) {}

  void ExpectAsReference() const {
    ExpectSums();
    CheckedList::ExpectAsReference();
  }

  void ExpectSums() const {
    EXPECT_EQ(result.sums_ticket, kTicket);
    double squares = 0, first = 0;
    bool all_finite = true, all_double = true;
    for (uint32_t i = 0; i < 32 * kListWords; ++i) {
      const bool is_there = i < gate_;
      const Seen seen = is_there ? Look(tensors_[i]) : Seen{};
      EXPECT_EQ(result.sums.IsZero(i), !seen.any) << "entry " << i;
      if (!is_there) continue;
      squares += seen.squares;
      if (i == 0) first = seen.first;
      all_finite &= seen.is_finite;
      const size_t part = static_cast<size_t>(reference::PartBytes(tensors_[i].type));
      all_double &= part == 8 || tensors_[i].sizes[0] == 0;
    }
    ExpectSame(result.sums.first, first);
    // The contract says 2^-40 for doubles: few are added here.
    const double relative = all_double ? 1e-12 : 0x1p-22;
    if (!all_finite) return;
    if (std::isinf(squares)) {
      EXPECT_EQ(result.sums.squares, squares);
    } else {
      EXPECT_NEAR(result.sums.squares, squares, relative * squares);
    }
  }

 private:
  struct Seen {
    double squares = 0;
    double first = 0;
    bool any = false;
    bool is_finite = true;
  };

  static void ExpectSame(double got, double want) {
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << got;
    } else {
      EXPECT_EQ(got, want);
    }
  }

  static double ValueOf(const reference::Value& value) {
    switch (value.kind) {
      case reference::Kind::kNan:
        return NAN;
      case reference::Kind::kPosInf:
        return INFINITY;
      case reference::Kind::kNegInf:
        return -INFINITY;
      default:
        return value.value;
    }
  }

  static Seen Look(const JobTensor& tensor) {
    Seen seen;
    const bool summed = IsSummed(static_cast<uint8_t>(tensor.type));
    const auto part = static_cast<size_t>(reference::PartBytes(tensor.type));
    const size_t parts =
        static_cast<size_t>(tensor.sizes[0]) * static_cast<size_t>(reference::Parts(tensor.type));
    for (size_t i = 0; i < parts; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(tensor.data) + i * part, part);
      const double value = ValueOf(reference::Decode(tensor.type, word));
      seen.is_finite &= std::isfinite(value);
      seen.any |= value != 0;
      if (i == 0 && summed) seen.first = value;
      if (summed) seen.squares += value * value;
    }
    return seen;
  }
};

}  // namespace nanwatch::device
