// SPDX-License-Identifier: Apache-2.0
#include "shim/check/page_sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

namespace nanwatch {
namespace {

using enum wire::ElementType;

constexpr wire::ElementType kTypes[] = {
    kFloat64,   kFloat32,    kFloat16,      kBFloat16,       kComplex128,     kComplex64,
    kComplex32, kFloat8E5M2, kFloat8E4M3Fn, kFloat8E5M2Fnuz, kFloat8E4M3Fnuz, kFloat8E8M0Fnu};

// A tensor of zeros in which one element is NaN.
class OneNan {
 public:
  OneNan(wire::ElementType type, size_t count)
      : type_(type), count_(count), bytes_(count * ElementBytes(type)) {}

  void Put(size_t at) {
    std::memset(&bytes_[at * ElementBytes(type_)], NanByte(), ElementBytes(type_));
  }
  void Remove(size_t at) { std::memset(&bytes_[at * ElementBytes(type_)], 0, ElementBytes(type_)); }

  // The turns that find it.
  [[nodiscard]] std::vector<uint32_t> Turns() const {
    std::vector<uint32_t> found;
    for (uint32_t turn = 0; turn < kSampleTurns; ++turn) {
      if (LookAtPages(type_, bytes_.data(), count_, turn).IsNonFinite()) found.push_back(turn);
    }
    return found;
  }

 private:
  // Of all bytes of an element.
  [[nodiscard]] int NanByte() const {
    return type_ == kFloat8E5M2Fnuz || type_ == kFloat8E4M3Fnuz ? 0x80 : 0xff;
  }

  wire::ElementType type_;
  size_t count_;
  std::vector<unsigned char> bytes_;
};

TEST(LookAtPages, FindsABadElementAtTheTurnOfItsPageAndAtNoOther) {
  for (const wire::ElementType type : kTypes) {
    SCOPED_TRACE(static_cast<int>(type));
    const size_t page = kSamplePageBytes / ElementBytes(type);
    OneNan tensor(type, 37 * page);
    for (size_t number = 0; number < 37; ++number) {
      for (const size_t at : {number * page, number * page + page / 2, (number + 1) * page - 1}) {
        tensor.Put(at);
        EXPECT_EQ(tensor.Turns(), std::vector<uint32_t>{static_cast<uint32_t>(number % 16)}) << at;
        tensor.Remove(at);
      }
    }
    EXPECT_TRUE(tensor.Turns().empty());
  }
}

TEST(LookAtPages, ReadsEveryElementOnceInSixteenTurnsALastPartOfAPageAmongThem) {
  for (const size_t count : {1U, 5U, 1023U, 1024U, 1025U, 3000U, 16384U, 16385U, 17500U}) {
    OneNan tensor(kFloat32, count);
    for (size_t at = 0; at < count; at += at < 64 || count - at < 64 ? 1 : 61) {
      tensor.Put(at);
      EXPECT_EQ(tensor.Turns().size(), 1U) << at << " of " << count;
      tensor.Remove(at);
    }
  }
}

TEST(LookAtPages, SaysWhatItHasRead) {
  for (const uint64_t bytes : {1ULL, 4095ULL, 4096ULL, 4097ULL, 65536ULL, 65540ULL, 1234567ULL}) {
    uint64_t sum = 0;
    for (uint32_t turn = 0; turn < kSampleTurns; ++turn) sum += BytesOfPages(bytes, turn);
    EXPECT_EQ(sum, bytes);
  }
  EXPECT_EQ(BytesOfPages(1 << 20, 7), (1U << 20) / 16);
}

TEST(LookAtPages, TellsAMagnitudeThatWasSeenAndNotTheLargest) {
  std::vector<float> values(40 * 1024, 0.5F);
  values[2 * 1024 + 3] = -48;
  const Magnitude there = LookAtPages(kFloat32, values.data(), values.size(), 2);
  EXPECT_EQ(there.kind, Magnitude::Kind::kAtLeast);
  EXPECT_EQ(LargestValue(there, kFloat32), 48);
  EXPECT_EQ(LargestValue(LookAtPages(kFloat32, values.data(), values.size(), 3), kFloat32), 0.5);
  EXPECT_EQ(LookAtPages(kFloat32, values.data(), 1024, 3).kind, Magnitude::Kind::kNone);
  EXPECT_EQ(LookAtPages(kNone, values.data(), 1024, 0).kind, Magnitude::Kind::kNone);
}

TEST(SampleTurns, SixteenOfOneSizeHaveEachTurnOnce) {
  SampleTurns turns{};
  for (int round = 0; round < 50; ++round) {
    std::set<uint32_t> seen;
    for (uint32_t i = 0; i < kSampleTurns; ++i) {
      seen.insert(turns.Next(1 << 20));
      (void)turns.Next(3 << 20);  // another size counts by itself
    }
    EXPECT_EQ(seen.size(), kSampleTurns);
    EXPECT_LT(*seen.rbegin(), kSampleTurns);
  }
}

// The op that is the k-th of so many in every step reads all pages in a number of steps.
TEST(SampleTurns, AnOpAtTheSamePlaceInEveryStepDoesNotMeetTheSamePages) {
  for (uint32_t in_step = 1; in_step <= 64; ++in_step) {
    SampleTurns turns{};
    std::set<uint32_t> seen;
    int steps = 0;
    for (; seen.size() < kSampleTurns && steps < 500; ++steps) {
      for (uint32_t i = 0; i < in_step; ++i) {
        const uint32_t turn = turns.Next(1 << 20);
        if (i == in_step / 2) seen.insert(turn);
      }
    }
    EXPECT_EQ(seen.size(), kSampleTurns) << in_step << " ops in a step";
    EXPECT_LE(steps, 200) << in_step << " ops in a step";
  }
}

TEST(SampleTurns, MoreSizesThanThereIsRoomForStillHaveTurns) {
  SampleTurns turns{};
  for (uint64_t bytes = 1; bytes < 1000; ++bytes) EXPECT_LT(turns.Next(bytes), kSampleTurns);
}

}  // namespace
}  // namespace nanwatch
