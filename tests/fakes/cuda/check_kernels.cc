// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/check_kernels.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/property/device/cpu_machine.h"

namespace nanwatch::device {
namespace {

// Since the process began; see fake_check_bytes_read.
std::atomic<uint64_t> bytes_read{0};

void NoteRead() {
  bytes_read.fetch_add(std::exchange(CpuMemory::bytes_read, 0), std::memory_order_relaxed);
}

// What a launch found, and where it is to be told.
struct Seen {
  CheckResult result = {};
  uint64_t progress = 0;
  uint64_t result_address = 0;
  uint64_t progress_address = 0;
};

// As a GPU does, with CUDA_ERROR_MISALIGNED_ADDRESS; of the first device, whichever it was.
void LoseContextWhereMisaligned() {
  if (CpuMemory::misaligned.exchange(0) != 0) fake_cuda_lose_context(0, 716);
}

// The launch's slot is clear when it begins, but in a graph, and its scratch zero: copies stand in
// for both. The result of a list has the size of any, and what is told of it stands in its place.
template <class Launch>
void* Look(const void* parameter, uint32_t blocks, uint32_t) {
  static thread_local std::mt19937_64 random(1);
  Launch launch;
  std::memcpy(&launch, parameter, sizeof(launch));
  LaunchScratch scratch = {};
  auto seen = std::make_unique<Seen>();
  LaunchHead& head = launch.head;
  seen->result_address = head.result;
  seen->progress_address = head.progress;
  // The kernel leaves the kinds of tensors that the launch does not have.
  const auto* slot = reinterpret_cast<const CheckResult*>(head.result);
  if (slot != nullptr && slot->ticket == 0) {
    std::memcpy(seen->result.output_kinds, slot->output_kinds, sizeof slot->output_kinds);
    std::memcpy(seen->result.input_kinds, slot->input_kinds, sizeof slot->input_kinds);
  }
  head.result = reinterpret_cast<uint64_t>(&seen->result);
  head.scratch = reinterpret_cast<uint64_t>(&scratch);
  if (head.progress != 0) head.progress = reinterpret_cast<uint64_t>(&seen->progress);
  RunLaunch(launch, blocks, random);
  NoteRead();
  LoseContextWhereMisaligned();
  return seen.release();
}

// Sums come before all else.
void TellSums(const Seen& seen) {
  const ListResult list = ListOf(seen.result);
  if (list.sums_ticket == 0) return;
  std::memcpy(reinterpret_cast<char*>(seen.result_address) + offsetof(ListResult, sums), &list.sums,
              sizeof list.sums);
  CpuMemory::PublishToHost(seen.result_address + offsetof(ListResult, sums_ticket),
                           list.sums_ticket);
}

// A slot of its own result stands in for that of the launch.
struct Measured {
  MeasureResult result = {};
  uint64_t progress = 0;
  ListLaunch launch;
};

template <class Launch>
void* MeasureNow(const void* parameter, uint32_t blocks, uint32_t) {
  static thread_local std::mt19937_64 random(1);
  auto measured = std::make_unique<Measured>();
  std::memcpy(static_cast<void*>(&measured->launch), parameter, sizeof(ListLaunch));
  MeasureScratch scratch = {};
  Launch launch{measured->launch};
  launch.head.result = reinterpret_cast<uint64_t>(&measured->result);
  launch.head.scratch = reinterpret_cast<uint64_t>(&scratch);
  if (launch.head.progress != 0)
    launch.head.progress = reinterpret_cast<uint64_t>(&measured->progress);
  RunLaunch(launch, blocks, random);
  NoteRead();
  LoseContextWhereMisaligned();
  return measured.release();
}

void TellMeasured(void* context) {
  const std::unique_ptr<Measured> measured(static_cast<Measured*>(context));
  const LaunchHead& head = measured->launch.head;
  if (measured->result.measures_ticket != 0) {
    auto* slot = reinterpret_cast<MeasureResult*>(head.result);
    std::copy(measured->result.measures, measured->result.measures + head.output_count,
              slot->measures);
    CpuMemory::PublishToHost(reinterpret_cast<uint64_t>(&slot->measures_ticket), head.ticket);
  }
  if (measured->progress != 0) CpuMemory::PublishToHost(head.progress, measured->progress);
}

// As the kernel would have, had the slot not been a copy.
void TellAgain(const Seen& seen, CheckResult* slot) {
  const uint64_t later = seen.result.step - slot->step;
  if (later != 0) slot->again |= uint64_t{1} << (later < 64 ? later - 1 : 63);
  CpuMemory::PublishToHost(reinterpret_cast<uint64_t>(&slot->hits), slot->hits + 1);
}

void Tell(void* context) {
  const std::unique_ptr<Seen> seen(static_cast<Seen*>(context));
  TellSums(*seen);
  if (const uint64_t ticket = seen->result.ticket; ticket != 0) {
    auto* slot = reinterpret_cast<CheckResult*>(seen->result_address);
    if (slot->ticket == ticket) return TellAgain(*seen, slot);
    constexpr size_t kAfterTicket = sizeof(slot->ticket);
    std::memcpy(reinterpret_cast<char*>(slot) + kAfterTicket,
                reinterpret_cast<const char*>(&seen->result) + kAfterTicket,
                sizeof(CheckResult) - kAfterTicket);
    CpuMemory::PublishToHost(seen->result_address, ticket);
  }
  if (seen->progress != 0) CpuMemory::PublishToHost(seen->progress_address, seen->progress);
}

void* AddStep(const void* parameter, uint32_t, uint32_t) {
  const auto& launch = *static_cast<const StepLaunch*>(parameter);
  auto* words = reinterpret_cast<StepWords*>(launch.words);
  __atomic_fetch_add(&words->steps, 1, __ATOMIC_RELAXED);
  const uint32_t counted = __atomic_load_n(&words->counted, __ATOMIC_RELAXED);
  __atomic_store_n(&words->counted, CountedAfter(counted, launch.steps), __ATOMIC_RELAXED);
  return nullptr;
}

void TellNothing(void*) {}

}  // namespace

void RegisterCheckKernels() {
  fake_cuda_register_early_kernel("nanwatch_check_few", &Look<FewLaunch>, &Tell, sizeof(FewLaunch));
  fake_cuda_register_early_kernel("nanwatch_check_many", &Look<ManyLaunch>, &Tell,
                                  sizeof(ManyLaunch));
  fake_cuda_register_early_kernel("nanwatch_check_list", &Look<ListLaunch>, &Tell,
                                  sizeof(ListLaunch));
  fake_cuda_register_early_kernel("nanwatch_sum_list", &Look<SumLaunch>, &Tell, sizeof(SumLaunch));
  fake_cuda_register_early_kernel("nanwatch_measure_list", &MeasureNow<MeasureLaunch>,
                                  &TellMeasured, sizeof(ListLaunch));
  fake_cuda_register_early_kernel("nanwatch_compare_list", &MeasureNow<CompareLaunch>,
                                  &TellMeasured, sizeof(ListLaunch));
  fake_cuda_register_early_kernel("nanwatch_check_batch", &Look<BatchLaunch>, &Tell,
                                  sizeof(BatchLaunch));
  fake_cuda_register_early_kernel("nanwatch_add_step", &AddStep, &TellNothing, sizeof(StepLaunch));
}

}  // namespace nanwatch::device

uint64_t fake_check_bytes_read() {
  return nanwatch::device::bytes_read.load(std::memory_order_relaxed);
}
