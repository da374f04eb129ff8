// SPDX-License-Identifier: Apache-2.0
// What collectives bring, recorded by threads that are interrupted on their way.
#include "shim/observe/gpu/gpu_collective_results.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "shim/observe/observer.h"

namespace nanwatch {

// In place of torch's: a storage here is a number that nobody looks into.
WeakStorageOps TorchWeakStorageOps() noexcept { return {}; }
WeakStorage HoldWeakly(const c10::StorageImpl* storage) noexcept { return {storage, nullptr}; }

namespace {

const void* StorageOf(uint64_t number) { return reinterpret_cast<const void*>(number << 12); }

InputSeen Tensor(uint64_t storage) {
  InputSeen tensor{};
  tensor.storage.storage = StorageOf(storage);
  tensor.byte_begin = 0;
  tensor.byte_end = 64;
  return tensor;
}

struct CollectiveResults {
  GpuCollectiveResults all;

  void Record(uint64_t storage, uint64_t event) {
    ASSERT_TRUE(all.Record(Tensor(storage), CollectiveName{}, nullptr, event, /*given_in=*/true));
  }
  GpuCollectiveResults::CollectiveResult Find(uint64_t storage, uint64_t before) {
    GpuCollectiveResults::CollectiveResult found{};
    EXPECT_TRUE(all.Find(StorageOf(storage), 0, 64, before, &found)) << storage;
    return found;
  }
};

// The thread of event 100 was interrupted while others went on.
TEST(GpuCollectiveResults, EachHasItsStepThoughAnOlderOneIsRecordedLast) {
  CollectiveResults collective_results;
  for (uint64_t event = 101; event <= 300; ++event) collective_results.Record(event, event);
  collective_results.Record(100, 100);
  for (uint64_t event = 100; event <= 300; ++event) collective_results.all.SetStep(event, 1, 7);
  for (uint64_t event = 100; event <= 300; ++event) {
    EXPECT_EQ(collective_results.Find(event, 1000).step, 8u) << event;
  }
}

TEST(GpuCollectiveResults, TheNewestIsThatOfTheNewestEvent) {
  CollectiveResults collective_results;
  collective_results.Record(1, 200);
  collective_results.Record(1, 100);
  EXPECT_EQ(collective_results.Find(1, 1000).event, 200u);
  EXPECT_EQ(collective_results.Find(1, 200).event, 100u);
}

TEST(GpuCollectiveResults, AnEventSetsAllItsOwnAndNoOthers) {
  CollectiveResults collective_results;
  for (uint64_t storage = 1; storage <= 3; ++storage) collective_results.Record(storage, 50);
  collective_results.Record(4, 51);
  collective_results.all.SetStep(50, 3, 2);
  for (uint64_t storage = 1; storage <= 3; ++storage) {
    EXPECT_EQ(collective_results.Find(storage, 1000).step, 3u);
  }
  EXPECT_EQ(collective_results.Find(4, 1000).step, 0u);
}

}  // namespace
}  // namespace nanwatch
