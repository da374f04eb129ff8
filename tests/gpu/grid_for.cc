// SPDX-License-Identifier: Apache-2.0
// What Python needs of the kernel's C++ to launch it: how many blocks, and how the structs lie.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/device/batch_launch.h"
#include "shim/device/check_list.h"
#include "shim/device/measure_launch.h"

using namespace nanwatch::device;

// `launch` is a ManyLaunch, or as much of one as has the tensors that its head counts.
extern "C" __attribute__((visibility("default"))) uint32_t nanwatch_grid_for(
    const void* launch, uint32_t multiprocessors) {
  return GridFor(*static_cast<const ManyLaunch*>(launch), multiprocessors);
}

extern "C" __attribute__((visibility("default"))) uint32_t nanwatch_list_grid_for(
    const void* launch, uint32_t multiprocessors) {
  return ListGridFor(*static_cast<const ListLaunch*>(launch), multiprocessors);
}

// Fills in what the host plans of a BatchLaunch.
extern "C" __attribute__((visibility("default"))) uint32_t nanwatch_plan_batch(
    void* launch, uint32_t multiprocessors) {
  return BlocksFor(PlanBatch(*static_cast<BatchLaunch*>(launch)), multiprocessors);
}

// Bytes of a struct or offset of a field, by its place in this list; ~0 behind the end.
extern "C" __attribute__((visibility("default"))) uint64_t nanwatch_layout(uint32_t index) {
  static constexpr uint64_t kLayout[] = {
      sizeof(DeviceTensor),
      offsetof(DeviceTensor, type),
      offsetof(DeviceTensor, one_run),
      offsetof(DeviceTensor, sizes),
      offsetof(DeviceTensor, strides),
      sizeof(TensorCounts),
      offsetof(TensorCounts, first_bad),
      offsetof(TensorCounts, finite_min),
      sizeof(CheckResult),
      offsetof(CheckResult, output_kinds),
      offsetof(CheckResult, outputs),
      offsetof(CheckResult, inputs),
      sizeof(LaunchHead),
      offsetof(LaunchHead, progress),
      offsetof(LaunchHead, output_count),
      sizeof(FewLaunch),
      sizeof(ManyLaunch),
      sizeof(ListLaunch),
      sizeof(ListResult),
      offsetof(ListResult, counted),
      offsetof(ListResult, bad),
      offsetof(ListResult, entry),
      offsetof(ListResult, counts),
      sizeof(LaunchScratch),
      kThreadsPerBlock,
      offsetof(ListResult, sums_ticket),
      offsetof(ListResult, sums),
      sizeof(ListSums),
      offsetof(ListSums, first),
      offsetof(ListSums, nonzero),
      sizeof(Measure),
      offsetof(Measure, largest),
      offsetof(Measure, zeros),
      sizeof(MeasureResult),
      offsetof(MeasureResult, measures_ticket),
      offsetof(MeasureResult, measures),
      kMeasuredMax,
      sizeof(MeasureScratch),
      sizeof(BatchLaunch),
      offsetof(BatchLaunch, phase),
      offsetof(BatchLaunch, ends),
      offsetof(BatchLaunch, entries),
      sizeof(BatchResult),
      offsetof(BatchResult, states),
      offsetof(BatchResult, tensor),
      offsetof(BatchResult, counted),
      offsetof(BatchResult, counts),
      kBatchEntriesMax,
      kBatchOthersMax,
      kBatchEntriesCounted,
      kReadAll,
      kWasReadInFull,
      kReadInFullBytes,
      kSamplePhases,
  };
  return index < sizeof(kLayout) / sizeof(kLayout[0]) ? kLayout[index] : ~uint64_t{0};
}
