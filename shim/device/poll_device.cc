// SPDX-License-Identifier: Apache-2.0
// Polling: reads what the kernels that CheckedDevice has launched have written.
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "shim/device/checked_device.h"
#include "shim/host/monotonic_clock.h"

namespace nanwatch::device {
namespace {

// The sums that the launch with this ticket has written into its slot; a copy.
bool SumsOf(const CheckResult& slot, uint64_t ticket, ListSums* sums) {
  if (LoadAcquire(&slot.list_sums_ticket) != ticket) return false;
  *sums = ListOf(slot).sums;
  return true;
}

// The same of a launch that measures, in place; null: it has written nothing.
const Measure* MeasuresOf(const CheckResult& slot, uint64_t ticket) {
  const auto& told = reinterpret_cast<const MeasureResult&>(slot);
  return LoadAcquire(&told.measures_ticket) == ticket ? told.measures : nullptr;
}

// Whether a page of this process is there: a copy by the kernel answers an error where a load would
// end the process. True where such copies are forbidden.
bool IsMapped(const void* address) {
  char copy = 0;
  const iovec to = {&copy, 1};
  const iovec from = {const_cast<void*>(address), 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

}  // namespace

bool CheckedDevice::MayRead() noexcept {
  if (given_memory_used_ || host_ == nullptr) return true;
  if (memory_gone_.load(std::memory_order_acquire)) return false;
  const int error = errno;
  const bool is_mapped = IsMapped(host_);
  errno = error;
  if (is_mapped) return true;
  memory_gone_.store(true, std::memory_order_release);
  StepDown({"reading what it has written", kCuContextIsDestroyed}, "the device was reset");
  return false;
}

size_t CheckedDevice::Poll(FinishedCallback callback, void* context) noexcept {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kUnseen || state == State::kSettingUp || table_ == nullptr) return 0;
  const bool may_read = MayRead();
  // What is in the host's memory by then is reported as usual. Slots of a device that is down are
  // not used again, so that what comes later finds nobody's.
  const bool lost =
      context_lost_.load(std::memory_order_acquire) ||
      (state == State::kDown &&
       MonotonicNs() - down_ns_.load(std::memory_order_relaxed) >= shared_.options.down_after_ns);
  size_t told = 0;
  table_->ForEachStream(
      [&](uint32_t index) { told += PollStream(index, lost, callback, context); });
  return captured_ == nullptr || !may_read ? told : told + PollCaptured(callback, context);
}

size_t CheckedDevice::PollStream(uint32_t index, bool lost, FinishedCallback callback,
                                 void* context) noexcept {
  LaunchStream& stream = table_->Stream(index);
  table_->TakeQueued(stream);
  const bool may_read = !memory_gone_.load(std::memory_order_relaxed);
  const uint64_t progress = may_read ? ProgressOf(index) : 0;
  size_t told = 0;
  while (stream.oldest != kNilSlot) {
    const uint32_t slot = stream.oldest;
    const PendingLaunch& launch = table_->Launch(slot);
    const bool done = progress >= launch.finished_at;
    if (!done && !lost) break;

    CheckResult* result = Result(slot);
    Finished finished;
    finished.device = ordinal_;
    finished.ticket = launch.ticket;
    if (!may_read) {
      finished.outcome = Finished::Outcome::kLost;
    } else if (LoadAcquire(&result->ticket) == launch.ticket) {
      finished.outcome = Finished::Outcome::kBad;
      finished.result = result;
      finished.hits = LoadAcquire(&result->hits);
      has_counted_.store(true, std::memory_order_relaxed);
    } else if (!done) {
      finished.outcome = Finished::Outcome::kLost;
    }
    const bool is_known = finished.outcome != Finished::Outcome::kLost;
    ListSums sums;
    if (is_known && !launch.measures && SumsOf(*result, launch.ticket, &sums)) {
      finished.sums = &sums;
    }
    if (is_known && launch.measures) finished.measures = MeasuresOf(*result, launch.ticket);
    callback(context, finished);
    ++told;
    if (finished.result != nullptr) {
      // The next launch writes those of its own tensors only.
      std::memset(result->output_kinds, 0, sizeof result->output_kinds);
      std::memset(result->input_kinds, 0, sizeof result->input_kinds);
      __atomic_store_n(&result->ticket, 0, __ATOMIC_RELAXED);
    }
    stream.oldest = launch.next_queued;
    stream.queued.fetch_sub(1, std::memory_order_relaxed);
    table_->Give(slot);
  }
  return told;
}

}  // namespace nanwatch::device
