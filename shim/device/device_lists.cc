// SPDX-License-Identifier: Apache-2.0
// What CheckedDevice launches for lists and batches. The parameters of a batch are written once,
// where it is asked for, and their head where it is launched.
#include <algorithm>

#include "shim/device/checked_device.h"

namespace nanwatch::device {
namespace {

bool HoldElements(std::span<const ListEntry> entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [](const ListEntry& entry) { return NumelOf(entry) > 0; });
}

}  // namespace

Skip CheckedDevice::EnqueueList(const CheckListRequest& request, Enqueued* enqueued) noexcept {
  if (!HoldElements(request.gate)) return Skip::kNothingToCheck;
  Parts parts;
  parts.gate = request.gate;
  parts.stream = request.stream;
  parts.sums = request.sums;
  parts.kinds_only = request.kinds_only;
  parts.measures = request.measures;
  parts.samples = request.samples;
  parts.tiles = request.tiles;
  if (request.gate.size() <= size_t{kListGateMax}) {
    parts.others = request.others;
  } else {
    shared_.inputs_left_out.fetch_add(request.others.size(), std::memory_order_relaxed);
  }
  return EnqueueParts(parts, request.reports, enqueued);
}

CuResult CheckedDevice::LaunchList(const LaunchHead& head, const Part& part) noexcept {
  ListLaunch launch;  // what is behind its entries is not read
  launch.head = head;
  std::copy(part.gate.begin(), part.gate.end(), launch.entries);
  std::copy(part.others.begin(), part.others.end(), launch.entries + part.gate.size());
  if (!part.samples.empty()) return LaunchComparison(&launch, part);
  const uint32_t blocks = part.tiles != 0
                              ? BlocksFor(part.tiles, static_cast<uint32_t>(multiprocessors_))
                              : shared_.options.list_grid_for(launch, multiprocessors_);
  const CuFunction function = part.measures ? measure_list_ : part.sums ? sum_list_ : check_list_;
  return Launch(function, blocks, kThreadsPerBlock, &launch, part.stream);
}

// A block for each tensor: its sample is small, however large it is.
CuResult CheckedDevice::LaunchComparison(ListLaunch* launch, const Part& part) noexcept {
  ListEntry* kept = launch->entries + part.gate.size();
  for (const SampleSpan& span : part.samples) {
    *kept++ = MakeEntry(samples_ + span.begin * sizeof(double), span.count,
                        static_cast<uint8_t>(wire::ElementType::kFloat64));
  }
  return Launch(compare_list_, static_cast<uint32_t>(part.gate.size()), kThreadsPerBlock, launch,
                part.stream);
}

Skip CheckedDevice::EnqueueBatch(const CheckBatchRequest& request, Enqueued* enqueued) noexcept {
  const size_t entries = std::min(request.entries.size(), size_t{kBatchEntriesMax});
  const size_t others = std::min(request.others.size(), size_t{kBatchOthersMax});
  Batch batch;  // what is behind its tensors is not read
  BatchLaunch& launch = batch.launch;
  launch.head.output_count = static_cast<uint32_t>(entries);
  launch.head.input_count = static_cast<uint32_t>(others);
  launch.head.flags =
      (request.read_all ? kReadAll : 0) | (request.reports_masks ? kReportMasks : 0);
  launch.phase = request.phase;
  std::copy_n(request.entries.begin(), entries, launch.entries);
  batch.tiles = PlanBatch(launch);
  if (batch.tiles == 0) return Skip::kNothingToCheck;
  std::copy_n(request.others.begin(), others, launch.entries + entries);
  Parts parts;
  parts.stream = request.stream;
  parts.batch = &batch;
  const Skip skip = EnqueueParts(parts, request.reports, enqueued);
  const size_t left_out = request.entries.size() - entries + request.others.size() - others;
  if (enqueued->launches != 0 && left_out != 0) {
    shared_.inputs_left_out.fetch_add(left_out, std::memory_order_relaxed);
  }
  return skip;
}

CuResult CheckedDevice::LaunchBatch(const LaunchHead& head, const Part& part) noexcept {
  BatchLaunch& launch = part.batch->launch;
  launch.head = head;
  const uint32_t blocks = BlocksFor(part.batch->tiles, static_cast<uint32_t>(multiprocessors_));
  return Launch(check_batch_, blocks, kThreadsPerBlock, &launch, part.stream);
}

}  // namespace nanwatch::device
