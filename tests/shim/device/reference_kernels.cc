// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/device/reference_kernels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "proto/wire/record.h"
#include "shim/device/batch_launch.h"
#include "shim/device/list_launch.h"
#include "shim/device/measure_launch.h"
#include "tests/fakes/cuda/fake_cuda.h"

namespace nanwatch::device {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::atomic<const char*> broken{nullptr};
std::atomic<int64_t> last_grid{-1};
std::atomic<uint64_t> few_launches{0};
std::atomic<uint64_t> many_launches{0};
std::atomic<uint64_t> list_launches{0};
std::atomic<uint64_t> sum_launches{0};
std::atomic<uint64_t> measure_launches{0};
std::atomic<uint64_t> batch_launches{0};
std::atomic<uint32_t> last_phase{0};
std::atomic<uint32_t> last_flags{0};

void Require(bool condition, const char* what) {
  const char* none = nullptr;
  if (!condition) broken.compare_exchange_strong(none, what);
}

uint8_t Count(const DeviceTensor& tensor, TensorCounts* counts) {
  Require(tensor.type == static_cast<uint8_t>(wire::ElementType::kFloat32), "not a float32");
  const auto* values = reinterpret_cast<const float*>(tensor.data);
  *counts = {0, 0, 0, ~uint64_t{0}, kInfinity, -kInfinity, 0.0};
  for (int64_t i = 0; i < tensor.numel; ++i) {
    const double value = values[i];
    if (std::isfinite(value)) {
      counts->finite_min = std::min(counts->finite_min, value);
      counts->finite_max = std::max(counts->finite_max, value);
      continue;
    }
    counts->first_bad = std::min(counts->first_bad, static_cast<uint64_t>(i));
    ++(std::isnan(value) ? counts->nan : value > 0 ? counts->pos_inf : counts->neg_inf);
  }
  return static_cast<uint8_t>((counts->nan != 0 ? wire::kHasNan : 0) |
                              (counts->pos_inf != 0 ? wire::kHasPosInf : 0) |
                              (counts->neg_inf != 0 ? wire::kHasNegInf : 0));
}

// A word of the contract that is 0 or a device address.
void RequireDeviceAddress(uint64_t address) {
  Require(address == 0 || fake_cuda_is_device_address(address) != 0, "not a device address");
}

// Which replay it is that an earlier one has answered for.
template <class Result>
void MarkAgain(const LaunchHead& head, Result* result) {
  const uint64_t later = *reinterpret_cast<uint64_t*>(head.step_word) - result->step;
  if (later != 0) result->again |= uint64_t{1} << (later < 64 ? later - 1 : 63);
}

void Answer(const LaunchHead& head, const DeviceTensor* tensors) {
  auto* result = reinterpret_cast<CheckResult*>(head.result);
  auto* scratch = reinterpret_cast<LaunchScratch*>(head.scratch);
  Require(scratch->blocks_done == 0 && scratch->bad_outputs == 0, "scratch is not zero");
  scratch->blocks_done = 1;  // a launch that shares the scratch would see it
  CheckResult found = {};
  uint8_t any = 0;
  for (uint32_t i = 0; i < head.output_count; ++i) {
    any |= found.output_kinds[i] = Count(tensors[i], &found.outputs[i]);
  }
  if (any != 0) {
    if (result->ticket != head.ticket) {
      Require(result->ticket == 0, "the slot was not cleared");
      result->hits = 0;
      for (uint32_t i = 0; i < head.input_count; ++i) {
        found.input_kinds[i] = Count(tensors[head.output_count + i], &found.inputs[i]);
      }
      found.step = *reinterpret_cast<uint64_t*>(head.step_word);
      // Those of other tensors are left.
      std::copy(found.output_kinds, found.output_kinds + head.output_count, result->output_kinds);
      std::copy(found.input_kinds, found.input_kinds + head.input_count, result->input_kinds);
      std::copy(found.outputs, found.outputs + kOutputsMax, result->outputs);
      std::copy(found.inputs, found.inputs + kInputsMax, result->inputs);
      result->step = found.step;
      result->again = 0;
    } else {
      MarkAgain(head, result);
    }
    __atomic_fetch_add(&result->hits, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&result->ticket, head.ticket, __ATOMIC_RELEASE);
  }
  scratch->blocks_done = 0;
}

void AnswerList(const LaunchHead& head, const ListEntry* entries) {
  auto* result = reinterpret_cast<ListResult*>(head.result);
  auto* scratch = reinterpret_cast<LaunchScratch*>(head.scratch);
  Require(scratch->blocks_done == 0 && scratch->bad_outputs == 0, "scratch is not zero");
  ListResult found = {};
  bool gate_bad = false;
  for (uint32_t i = 0; i < head.output_count + head.input_count; ++i) {
    if (i == head.output_count && !gate_bad) break;
    DeviceTensor tensor = {};
    tensor.data = entries[i].data;
    tensor.numel = static_cast<int64_t>(NumelOf(entries[i]));
    tensor.type = TypeOf(entries[i]);
    TensorCounts counts;
    const uint8_t kinds = Count(tensor, &counts);
    if (kinds == 0) continue;
    gate_bad = true;
    found.bad[i / 32] |= 1u << i % 32;
    const bool has_rest = head.input_count != 0 && i < head.output_count;
    if (found.counted == static_cast<uint32_t>(has_rest ? kGateCountedMax : kListCountedMax))
      continue;
    found.kinds[found.counted] = kinds;
    found.entry[found.counted] = static_cast<uint8_t>(i);
    found.counts[found.counted++] = counts;
  }
  if (!gate_bad) return;
  if (result->ticket != head.ticket) {
    Require(result->ticket == 0, "the slot was not cleared");
    found.step = *reinterpret_cast<uint64_t*>(head.step_word);
    // What is not this launch's to tell is left.
    found.sums_ticket = result->sums_ticket;
    found.sums = result->sums;
    *result = found;
  } else {
    MarkAgain(head, result);
  }
  __atomic_fetch_add(&result->hits, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&result->ticket, head.ticket, __ATOMIC_RELEASE);
}

void AnswerSums(const LaunchHead& head, const ListEntry* entries) {
  auto* result = reinterpret_cast<ListResult*>(head.result);
  ListSums sums = {};
  for (uint32_t i = 0; i < head.output_count; ++i) {
    const auto* values = reinterpret_cast<const float*>(entries[i].data);
    if (i == 0 && NumelOf(entries[i]) != 0) sums.first = values[0];
    for (uint64_t at = 0; at < NumelOf(entries[i]); ++at) {
      sums.squares += double{values[at]} * values[at];
      if (values[at] != 0) sums.nonzero[i / 32] |= 1u << i % 32;
    }
  }
  result->sums = sums;
  __atomic_store_n(&result->sums_ticket, head.ticket, __ATOMIC_RELEASE);
}

template <bool kSums>
void CheckList(const void* parameter, uint32_t blocks, uint32_t threads) {
  const auto& launch = *static_cast<const ListLaunch*>(parameter);
  const LaunchHead& head = launch.head;
  Require(head.ticket != 0, "a launch without a ticket");
  Require(threads == kThreadsPerBlock, "a block of another size");
  Require(head.output_count + head.input_count <= kListMax, "too many entries");
  for (const uint64_t address : {head.result, head.scratch, head.progress, head.step_word}) {
    RequireDeviceAddress(address);
  }
  if (head.output_count != 0) {
    last_grid.store(blocks);
    ++(kSums ? sum_launches : list_launches);
    if (kSums) AnswerSums(head, launch.entries);
    AnswerList(head, launch.entries);
  }
  if (head.progress != 0) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(head.progress), head.ticket, __ATOMIC_RELEASE);
  }
}

void MeasureList(const void* parameter, uint32_t blocks, uint32_t threads) {
  const auto& launch = *static_cast<const ListLaunch*>(parameter);
  const LaunchHead& head = launch.head;
  Require(head.ticket != 0, "a launch without a ticket");
  Require(threads == kThreadsPerBlock, "a block of another size");
  Require(head.output_count <= kMeasuredMax && head.input_count == 0, "too many entries");
  for (const uint64_t address : {head.result, head.scratch, head.progress, head.step_word}) {
    RequireDeviceAddress(address);
  }
  if (head.output_count != 0) {
    last_grid.store(blocks);
    ++measure_launches;
    auto* result = reinterpret_cast<MeasureResult*>(head.result);
    auto* scratch = reinterpret_cast<MeasureScratch*>(head.scratch);
    constexpr MeasureScratch kZero = {};
    Require(std::memcmp(scratch, &kZero, sizeof kZero) == 0, "scratch is not zero");
    scratch->totals[kMeasuredMax - 1].zeros = 1;  // a launch that shares the scratch would see it
    for (uint32_t i = 0; i < head.output_count; ++i) {
      const auto* values = reinterpret_cast<const float*>(launch.entries[i].data);
      Measure& told = result->measures[i] = {};
      for (uint64_t at = 0; at < NumelOf(launch.entries[i]); ++at) {
        told.sum += double{values[at]};
        told.squares += double{values[at]} * values[at];
        told.largest = std::max(told.largest, std::fabs(double{values[at]}));
        told.zeros += values[at] == 0;
      }
    }
    __atomic_store_n(&result->measures_ticket, head.ticket, __ATOMIC_RELEASE);
    *scratch = {};
  }
  if (head.progress != 0) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(head.progress), head.ticket, __ATOMIC_RELEASE);
  }
}

void CompareList(const void* parameter, uint32_t blocks, uint32_t threads) {
  const auto& launch = *static_cast<const ListLaunch*>(parameter);
  const LaunchHead& head = launch.head;
  Require(threads == kThreadsPerBlock && blocks == std::max(head.output_count, 1u), "another grid");
  Require(head.output_count <= kMeasuredMax && head.input_count == head.output_count,
          "not a sample for each entry");
  for (uint32_t i = 0; i < head.output_count; ++i) {
    const ListEntry& sample = launch.entries[head.output_count + i];
    RequireDeviceAddress(sample.data);
    Require(TypeOf(sample) == static_cast<uint8_t>(wire::ElementType::kFloat64), "not doubles");
    Measure& told = reinterpret_cast<MeasureResult*>(head.result)->measures[i] = {};
    for (uint64_t at = 0; at < NumelOf(sample); ++at) {
      const double now = reinterpret_cast<const float*>(launch.entries[i].data)[at];
      double& before = reinterpret_cast<double*>(sample.data)[at];
      told.sum += before * before;
      told.squares += (now - before) * (now - before);
      before = now;
    }
  }
  if (head.output_count != 0) {
    __atomic_store_n(&reinterpret_cast<MeasureResult*>(head.result)->measures_ticket, head.ticket,
                     __ATOMIC_RELEASE);
  }
  if (head.progress != 0) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(head.progress), head.ticket, __ATOMIC_RELEASE);
  }
}

// Of entries that are read in full. All bad tensors have figures: there are few of them.
void AnswerBatch(const BatchLaunch& launch) {
  const LaunchHead& head = launch.head;
  auto* result = reinterpret_cast<BatchResult*>(head.result);
  auto* scratch = reinterpret_cast<BatchScratch*>(head.scratch);
  Require(scratch->blocks_done == 0 && scratch->seen == 0, "scratch is not zero");
  BatchResult found = {};
  bool is_hit = false;
  for (uint32_t i = 0; i < head.output_count + head.input_count; ++i) {
    if (i == head.output_count && !is_hit) break;
    const BatchEntry& entry = launch.entries[i];
    Require(!IsSampled(BatchBytesOf(entry), head.flags), "an entry is sampled");
    DeviceTensor tensor = {};
    tensor.data = entry.data;
    tensor.numel = static_cast<int64_t>(NumelOf(entry));
    tensor.type = TypeOf(entry);
    TensorCounts counts;
    const uint8_t kinds = Count(tensor, &counts);
    is_hit |= (kinds & ~wire::kHasNegInf) != 0;
    found.states[i] = kinds | kWasReadInFull;
    if (kinds == 0) continue;
    Require(found.counted < kBatchCountedMax, "more is bad than this kernel counts");
    found.kinds[found.counted] = kinds;
    found.tensor[found.counted] = static_cast<uint8_t>(i);
    found.counts[found.counted++] = counts;
  }
  if (!is_hit) return;
  if (result->ticket != head.ticket) {
    Require(result->ticket == 0, "the slot was not cleared");
    found.step = *reinterpret_cast<uint64_t*>(head.step_word);
    found.unused_sums_ticket = result->unused_sums_ticket;
    *result = found;
  } else {
    MarkAgain(head, result);
  }
  __atomic_fetch_add(&result->hits, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&result->ticket, head.ticket, __ATOMIC_RELEASE);
}

void CheckBatch(const void* parameter, uint32_t blocks, uint32_t threads) {
  const auto& launch = *static_cast<const BatchLaunch*>(parameter);
  const LaunchHead& head = launch.head;
  Require(head.ticket != 0, "a launch without a ticket");
  Require(threads == kThreadsPerBlock, "a block of another size");
  Require(head.output_count <= kBatchEntriesMax && head.input_count <= kBatchOthersMax,
          "too many tensors");
  for (const uint64_t address : {head.result, head.scratch, head.progress, head.step_word}) {
    RequireDeviceAddress(address);
  }
  if (head.output_count != 0) {
    BatchLaunch planned = launch;
    Require(PlanBatch(planned) != 0, "nothing to read");
    Require(std::equal(planned.ends, planned.ends + head.output_count, launch.ends),
            "the tiles are not planned");
    last_grid.store(blocks);
    last_phase.store(launch.phase);
    last_flags.store(head.flags);
    ++batch_launches;
    AnswerBatch(launch);
  }
  if (head.progress != 0) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(head.progress), head.ticket, __ATOMIC_RELEASE);
  }
}

template <int kTensors>
void Check(const void* parameter, uint32_t blocks, uint32_t threads) {
  const auto& launch = *static_cast<const CheckLaunch<kTensors>*>(parameter);
  const LaunchHead& head = launch.head;
  Require(head.ticket != 0, "a launch without a ticket");
  Require(threads == kThreadsPerBlock, "a block of another size");
  Require(head.output_count <= kOutputsMax && head.input_count <= kInputsMax &&
              head.output_count + head.input_count <= kTensors,
          "too many tensors");
  for (const uint64_t address : {head.result, head.scratch, head.progress, head.step_word}) {
    RequireDeviceAddress(address);
  }
  if (head.output_count == 0) {
    Require(blocks == 1 && head.result == 0 && head.scratch == 0,
            "a launch for nothing has a slot");
  } else {
    last_grid.store(blocks);
    ++(kTensors == kFewTensors ? few_launches : many_launches);
    Answer(head, launch.tensors);
  }
  if (head.progress != 0) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(head.progress), head.ticket, __ATOMIC_RELEASE);
  }
}

void AddStep(const void* parameter, uint32_t blocks, uint32_t threads) {
  Require(blocks == 1 && threads == 1, "a step counted more than once");
  const auto& launch = *static_cast<const StepLaunch*>(parameter);
  Require(launch.steps != 0, "no step ended");
  auto* word = reinterpret_cast<uint64_t*>(launch.words);
  RequireDeviceAddress(reinterpret_cast<uint64_t>(word));
  __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
}

}  // namespace

void RegisterReferenceKernels() {
  broken.store(nullptr);
  last_grid.store(-1);
  few_launches.store(0);
  many_launches.store(0);
  list_launches.store(0);
  sum_launches.store(0);
  measure_launches.store(0);
  batch_launches.store(0);
  fake_cuda_register_kernel("nanwatch_check_few", &Check<kFewTensors>, sizeof(FewLaunch));
  fake_cuda_register_kernel("nanwatch_check_many", &Check<kManyTensors>, sizeof(ManyLaunch));
  fake_cuda_register_kernel("nanwatch_check_list", &CheckList<false>, sizeof(ListLaunch));
  fake_cuda_register_kernel("nanwatch_sum_list", &CheckList<true>, sizeof(ListLaunch));
  fake_cuda_register_kernel("nanwatch_measure_list", &MeasureList, sizeof(ListLaunch));
  fake_cuda_register_kernel("nanwatch_compare_list", &CompareList, sizeof(ListLaunch));
  fake_cuda_register_kernel("nanwatch_check_batch", &CheckBatch, sizeof(BatchLaunch));
  fake_cuda_register_kernel("nanwatch_add_step", &AddStep, sizeof(StepLaunch));
}

const char* BrokenContract() { return broken.load(); }
int64_t LastGrid() { return last_grid.load(); }
uint64_t FewLaunches() { return few_launches.load(); }
uint64_t ManyLaunches() { return many_launches.load(); }
uint64_t ListLaunches() { return list_launches.load(); }
uint64_t SumLaunches() { return sum_launches.load(); }
uint64_t MeasureLaunches() { return measure_launches.load(); }
uint64_t BatchLaunches() { return batch_launches.load(); }
uint32_t LastPhase() { return last_phase.load(); }
uint32_t LastFlags() { return last_flags.load(); }

}  // namespace nanwatch::device
