// SPDX-License-Identifier: Apache-2.0
// Tensors of a GPU are gathered in lists that one launch checks.
#include "shim/observe/events/gpu_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <vector>

#include "shim/device/batch_launch.h"
#include "shim/device/check_list.h"
#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

class GpuTensorsTest : public testing::Test {
 protected:
  GpuTensorsTest() { on_.late.on = true; }
  // As if it lay on a GPU.
  static PlainTensor PlainOn(int8_t gpu, const at::Tensor& tensor) {
    PlainTensor plain = ObservedTraining::Plain(tensor);
    plain.gpu = gpu;
    return plain;
  }
  void AddRuns(int8_t gpu, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      tensors_.AddListed(PlainOn(gpu, tensor_), wire::Target::kGradient, nullptr);
    }
  }

  ObservedTraining on_;
  at::Tensor tensor_ = at::zeros({4, 3}, at::kDouble);
  GpuTensors tensors_{on_.late, &on_.thread};
};

TEST_F(GpuTensorsTest, CountWhatCannotBeCheckedAsUnchecked) {
  on_.late.on = false;
  tensors_.Add(ObservedTraining::Plain(tensor_), wire::Target::kNone, nullptr);
  AddRuns(0, 1);
  EXPECT_TRUE(tensors_.list().empty());
  EXPECT_TRUE(tensors_.runs().empty());
  const auto other_device = static_cast<int>(wire::Unchecked::kOtherDevice);
  EXPECT_EQ(on_.thread.counters.unchecked[other_device], 2u);
  GpuTensors uncounted(on_.late, &on_.thread, /*counts=*/false);
  uncounted.Add(ObservedTraining::Plain(tensor_), wire::Target::kNone, nullptr);
  EXPECT_EQ(on_.thread.counters.unchecked[other_device], 2u);
}

TEST_F(GpuTensorsTest, HoldStoragesWeakly) {
  tensors_.Add(ObservedTraining::Plain(tensor_), wire::Target::kGradient, nullptr, 3);
  AddRuns(0, 1);
  ASSERT_EQ(tensors_.list().size(), 1u);
  EXPECT_EQ(tensors_.list()[0].target, wire::Target::kGradient);
  EXPECT_EQ(tensors_.list()[0].name, 3u);
  EXPECT_EQ(tensors_.list()[0].seen.numel, 12);
  EXPECT_EQ(tensor_.storage().use_count(), 1u);
}

TEST_F(GpuTensorsTest, DescribeARunForItsLaunch) {
  AddRuns(2, 1);
  ASSERT_EQ(tensors_.runs().size(), 1u);
  const TensorList& list = *tensors_.runs()[0];
  EXPECT_EQ(list.gpu(), 2);
  EXPECT_EQ(list.bytes(), 12 * sizeof(double));
  EXPECT_EQ(list.tiles(), 1u);
  ASSERT_EQ(list.entries().size(), 1u);
  EXPECT_EQ(list.entries()[0].data, reinterpret_cast<uintptr_t>(tensor_.data_ptr()));
  EXPECT_EQ(device::NumelOf(list.entries()[0]), 12u);
  EXPECT_EQ(device::TypeOf(list.entries()[0]), static_cast<uint8_t>(wire::ElementType::kFloat64));
  EXPECT_EQ(list.tensors()[0].target, wire::Target::kGradient);
  EXPECT_EQ(list.tensors()[0].sizes[1], 3);
}

TEST_F(GpuTensorsTest, SumTheTilesOfALaunch) {
  const at::Tensor large = at::zeros({1 << 20});
  AddRuns(0, 2);
  tensors_.AddRun(PlainOn(0, large), wire::Target::kGradient, nullptr);
  const TensorList& list = *tensors_.runs()[0];
  device::ListLaunch launch{};
  launch.head.output_count = list.size();
  std::copy(list.entries().begin(), list.entries().end(), launch.entries);
  EXPECT_EQ(device::BlocksFor(list.tiles(), 1'000'000), device::ListGridFor(launch, 1'000'000));
}

TEST_F(GpuTensorsTest, ListRunsAndNoTensorsWithGaps) {
  const at::Tensor transposed = tensor_.t();
  const at::Tensor with_gaps = at::zeros({4, 6}).slice(1, 0, 6, 2);
  for (const at::Tensor& tensor : {transposed, with_gaps}) {
    tensors_.AddListed(PlainOn(0, tensor), wire::Target::kGradient, nullptr);
  }
  ASSERT_EQ(tensors_.runs().size(), 1u);
  EXPECT_EQ(tensors_.runs()[0]->size(), 1u);
  EXPECT_EQ(tensors_.list().size(), 1u);
}

TEST_F(GpuTensorsTest, CountWhatThereIsNoMemoryFor) {
  std::vector<TensorListPtr> many;
  uint64_t memory = 0;
  while (memory + 4 * TensorList::kMax * sizeof(CheckedTensor) < TensorList::kMemoryMax) {
    many.push_back(c10::make_intrusive<TensorList>(int8_t{0}, TensorList::kMax));
    memory += many.back()->memory();
  }
  while (many.size() < 1'000'000) {
    try {
      many.push_back(c10::make_intrusive<TensorList>(int8_t{0}, 16));
    } catch (const std::bad_alloc&) {
      break;
    }
  }
  AddRuns(0, 1);
  EXPECT_TRUE(tensors_.runs().empty());
  EXPECT_EQ(on_.thread.counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)], 1u);
  many.clear();
  AddRuns(0, 1);
  EXPECT_EQ(tensors_.runs().size(), 1u) << "what is let go of counts no more";
}

TEST_F(GpuTensorsTest, FillOneListForEachGpuWhereTheyAlternate) {
  for (int i = 0; i < 3; ++i) {
    AddRuns(0, 1);
    AddRuns(1, 1);
  }
  ASSERT_EQ(tensors_.runs().size(), 2u);
  EXPECT_EQ(tensors_.runs()[0]->size(), 3u);
  EXPECT_EQ(tensors_.runs()[1]->size(), 3u);
}

TEST_F(GpuTensorsTest, BeginAListWhereOneIsFull) {
  AddRuns(0, TensorList::kMax + 2);
  ASSERT_EQ(tensors_.runs().size(), 2u);
  EXPECT_EQ(tensors_.runs()[0]->size(), TensorList::kMax);
  EXPECT_EQ(tensors_.runs()[1]->size(), 2u);
}

TEST_F(GpuTensorsTest, TakeMoreThanWereExpected) {
  tensors_.Reserve(2);
  AddRuns(0, 40);
  size_t held = 0;
  for (const TensorListPtr& list : tensors_.runs()) held += list->size();
  EXPECT_EQ(held, 40u);
}

TEST(TensorList, HoldsStoragesWeakly) {
  at::Tensor tensor = at::zeros({4});
  const c10::weak_intrusive_ptr<c10::StorageImpl> storage = tensor.storage().getWeakStorageImpl();
  auto list = c10::make_intrusive<TensorList>(int8_t{0}, 1);
  list->Add(ObservedTraining::Plain(tensor), wire::Target::kParameter, nullptr, 5);
  EXPECT_EQ(storage.weak_use_count(), 3u) << "this one, the list's, and that of all strong ones";
  tensor = at::Tensor();
  EXPECT_TRUE(storage.expired());
  EXPECT_EQ(list->tensors()[0].name, 5u);
  EXPECT_FALSE(list->HasRoomFor(0));
  list.reset();
  EXPECT_EQ(storage.weak_use_count(), 1u);
}

}  // namespace
}  // namespace nanwatch
