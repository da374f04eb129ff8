// SPDX-License-Identifier: Apache-2.0
// What collectives bring, as it is asked for: by overlap, by age, by what was looked at. Storages
// are numbers here, and their holds are counted.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "shim/observe/gpu/gpu_collective_results.h"
#include "shim/observe/gpu/late_copies.h"
#include "tests/shim/observe/gpu/counted_holds.h"

namespace nanwatch {
namespace {

InputSeen BytesOf(uint64_t storage, uint64_t begin, uint64_t end) {
  InputSeen tensor{};
  tensor.storage.storage = StorageNumbered(storage);
  tensor.byte_begin = begin;
  tensor.byte_end = end;
  return tensor;
}

class CollectiveLookup : public testing::Test {
 protected:
  using Result = GpuCollectiveResults::CollectiveResult;

  void Record(uint64_t storage, uint64_t begin, uint64_t end, uint64_t event,
              const char* name = "nccl:all_reduce") {
    CollectiveName collective;
    std::snprintf(collective.name, sizeof collective.name, "%s", name);
    collective.sequence = event;
    ASSERT_TRUE(results_.Record(BytesOf(storage, begin, end), collective, &layer_, event,
                                /*given_in=*/event % 2 == 0));
  }
  // Number of the event; 0: none.
  uint64_t EventOf(uint64_t storage, uint64_t begin, uint64_t end, uint64_t before = UINT64_MAX) {
    Result found{};
    return results_.Find(StorageNumbered(storage), begin, end, before, &found) ? found.event : 0;
  }
  bool Take(uint64_t storage, uint64_t begin, uint64_t end) {
    return results_.TakeUnlooked(BytesOf(storage, begin, end));
  }

  Layer layer_;
  GpuCollectiveResults results_;
};

TEST_F(CollectiveLookup, FindsEverythingThatWasSaid) {
  Record(1, 0, 64, 6, "nccl:broadcast");
  Result found{};
  ASSERT_TRUE(results_.Find(StorageNumbered(1), 0, 64, 7, &found));
  EXPECT_STREQ(found.collective.name, "nccl:broadcast");
  EXPECT_EQ(found.collective.sequence, 6u);
  EXPECT_EQ(found.layer, &layer_);
  EXPECT_TRUE(found.given_in);
  EXPECT_EQ(found.step, 0u);
  EXPECT_EQ(found.value.ticket, 0u);
}

TEST_F(CollectiveLookup, FindsByOverlapAndNotByTouching) {
  Record(1, 64, 128, 5);
  EXPECT_EQ(EventOf(1, 0, 64), 0u);
  EXPECT_EQ(EventOf(1, 128, 192), 0u);
  EXPECT_EQ(EventOf(1, 0, 65), 5u);
  EXPECT_EQ(EventOf(1, 127, 192), 5u);
  EXPECT_EQ(EventOf(2, 64, 128), 0u) << "other memory";
}

TEST_F(CollectiveLookup, FindsNoneThatIsNotOlderThanWhoMeetsIt) {
  Record(1, 0, 64, 5);
  EXPECT_EQ(EventOf(1, 0, 64, 5), 0u);
  EXPECT_EQ(EventOf(1, 0, 64, 6), 5u);
}

TEST_F(CollectiveLookup, AResultIsTakenOnceByWhatCoversIt) {
  Record(1, 0, 64, 5);
  EXPECT_TRUE(results_.AnyUnlooked());
  EXPECT_FALSE(Take(2, 0, 64));
  EXPECT_FALSE(Take(1, 64, 128));
  EXPECT_TRUE(Take(1, 0, 64));
  EXPECT_FALSE(results_.AnyUnlooked());
  EXPECT_FALSE(Take(1, 0, 64));
}

TEST_F(CollectiveLookup, ABucketStaysForItsOtherTensors) {
  Record(1, 0, 128, 5);
  EXPECT_TRUE(Take(1, 0, 64));
  EXPECT_TRUE(Take(1, 64, 128));
  EXPECT_TRUE(results_.AnyUnlooked());
  EXPECT_TRUE(Take(1, 0, 256)) << "the whole of it, and more";
  EXPECT_FALSE(results_.AnyUnlooked());
}

TEST_F(CollectiveLookup, WhatIsWrittenOverByANewerResultNeedNotBeLookedAt) {
  Record(1, 0, 64, 5);
  Record(1, 32, 96, 6);
  EXPECT_TRUE(Take(1, 32, 96));
  EXPECT_FALSE(results_.AnyUnlooked()) << "one was open, not two";
  EXPECT_EQ(EventOf(1, 0, 16), 5u) << "it is still known by what it came";
}

TEST_F(CollectiveLookup, OfManyThatNobodyLooksAtTheOldestAreGivenUp) {
  for (uint64_t i = 1; i <= 300; ++i) Record(i, 0, 64, i);
  uint64_t open = 0;
  for (uint64_t i = 1; i <= 300; ++i) open += Take(i, 0, 64);
  EXPECT_EQ(open, 256u);
  EXPECT_FALSE(Take(44, 0, 64));
  EXPECT_FALSE(results_.AnyUnlooked());
  EXPECT_EQ(EventOf(1, 0, 64), 1u) << "given up is not forgotten";
}

TEST_F(CollectiveLookup, TheCountOfOpenOnesHoldsWhateverIsDoneToThem) {
  uint32_t random = 1;
  for (uint64_t event = 1; event <= 5000; ++event) {
    random = random * 1664525u + 1013904223u;
    const uint64_t storage = random >> 16 & 31;
    const uint64_t begin = (random >> 8 & 3) * 64;
    if ((random >> 24 & 3) == 0) {
      (void)Take(storage, begin, begin + 64);
    } else {
      Record(storage, begin, begin + ((random >> 26 & 1) != 0 ? 64 : 128), event);
    }
  }
  for (uint64_t storage = 0; storage < 32; ++storage) (void)Take(storage, 0, 1024);
  EXPECT_FALSE(results_.AnyUnlooked());
}

TEST_F(CollectiveLookup, TheOldestOfTooManyIsForgottenAndItsStorageLetGo) {
  const int held_before = HoldsTaken() - HoldsDropped();
  for (uint64_t i = 1; i <= 1024; ++i) Record(i, 0, 64, i);
  EXPECT_EQ(EventOf(1, 0, 64), 1u);
  EXPECT_EQ(HoldsTaken() - HoldsDropped() - held_before, 1024);
  Record(5000, 0, 64, 5000);
  EXPECT_EQ(EventOf(1, 0, 64), 0u);
  EXPECT_EQ(EventOf(2, 0, 64), 2u);
  EXPECT_EQ(HoldsTaken() - HoldsDropped() - held_before, 1024);
}

TEST_F(CollectiveLookup, WhatAResultWasToldAsIsKeptForItAlone) {
  Record(1, 0, 64, 5);
  Record(1, 64, 128, 5);
  Record(1, 0, 64, 6);
  Result of{};
  ASSERT_TRUE(results_.Find(StorageNumbered(1), 0, 64, 6, &of));
  results_.SetValue(of, ValueRef{77, 3}, 9, /*own=*/true);
  Result found{};
  ASSERT_TRUE(results_.Find(StorageNumbered(1), 0, 64, 6, &found));
  EXPECT_EQ(found.value.ticket, 77u);
  EXPECT_EQ(found.site, 9u);
  EXPECT_TRUE(found.own);
  ASSERT_TRUE(results_.Find(StorageNumbered(1), 64, 128, 6, &found));
  EXPECT_EQ(found.value.ticket, 0u);
  ASSERT_TRUE(results_.Find(StorageNumbered(1), 0, 64, 7, &found));
  EXPECT_EQ(found.value.ticket, 0u) << "a later collective into the same place";
}

class LateCopiesTest : public testing::Test {
 protected:
  bool MayBeUnderWay(uint64_t storage, uint64_t begin, uint64_t end, uint64_t number) {
    PlainTensor read{};
    read.storage = static_cast<const c10::StorageImpl*>(StorageNumbered(storage));
    read.byte_begin = begin;
    read.byte_end = end;
    return copies_->MayBeUnderWay(read, number);
  }

  std::unique_ptr<LateCopies> copies_ = std::make_unique<LateCopies>();
};

TEST_F(LateCopiesTest, WhatOverlapsACopyMayNotHaveArrived) {
  copies_->Add(BytesOf(1, 64, 128), 10);
  EXPECT_TRUE(MayBeUnderWay(1, 64, 128, 11));
  EXPECT_TRUE(MayBeUnderWay(1, 0, 65, 11));
  EXPECT_TRUE(MayBeUnderWay(1, 127, 128, 11));
  EXPECT_FALSE(MayBeUnderWay(1, 0, 64, 11));
  EXPECT_FALSE(MayBeUnderWay(1, 128, 192, 11));
  EXPECT_FALSE(MayBeUnderWay(2, 64, 128, 11));
}

TEST_F(LateCopiesTest, ACopyHasArrivedOnceMoreEventsFollowedThanCanBeUnderWay) {
  copies_->Add(BytesOf(1, 0, 64), 10);
  EXPECT_TRUE(MayBeUnderWay(1, 0, 64, 10 + 8192));
  EXPECT_FALSE(MayBeUnderWay(1, 0, 64, 10 + 8193));
}

TEST_F(LateCopiesTest, ANewerCopyDoesNotKeepAnOlderOneUnderWay) {
  copies_->Add(BytesOf(1, 0, 64), 10);
  copies_->Add(BytesOf(2, 0, 64), 9000);
  EXPECT_FALSE(MayBeUnderWay(1, 0, 64, 9001));
  EXPECT_TRUE(MayBeUnderWay(2, 0, 64, 9001));
}

TEST_F(LateCopiesTest, OfTooManyTheOldestAreTakenToHaveArrivedAndLetGo) {
  const int held_before = HoldsTaken() - HoldsDropped();
  for (uint64_t i = 1; i <= 256; ++i) copies_->Add(BytesOf(i, 0, 64), i);
  EXPECT_TRUE(MayBeUnderWay(1, 0, 64, 257));
  copies_->Add(BytesOf(257, 0, 64), 257);
  EXPECT_FALSE(MayBeUnderWay(1, 0, 64, 258));
  EXPECT_TRUE(MayBeUnderWay(2, 0, 64, 258));
  EXPECT_EQ(HoldsTaken() - HoldsDropped() - held_before, 256);
}

}  // namespace
}  // namespace nanwatch
