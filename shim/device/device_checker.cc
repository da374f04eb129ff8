// SPDX-License-Identifier: Apache-2.0
#include "shim/device/device_checker.h"

#include <new>

#include "shim/device/checked_device.h"

namespace nanwatch::device {
namespace {

// Slots are numbered in 32 bits, and a million of them is a gigabyte.
constexpr uint32_t kSlotsMin = 8;
constexpr uint32_t kSlotsMax = uint32_t{1} << 20;

constexpr bool Usable(const CheckerOptions& options) {
  return options.image != nullptr && options.image_bytes > 0 && options.grid_for != nullptr &&
         options.list_grid_for != nullptr && options.slots >= kSlotsMin &&
         options.slots <= kSlotsMax && options.captured_slots <= kSlotsMax &&
         options.progress_every > 0;
}

}  // namespace

size_t HostBytesFor(const CheckerOptions& options) noexcept {
  return HostLayout{options.slots, options.captured_slots}.Bytes();
}

std::unique_ptr<DeviceChecker> DeviceChecker::Create(const Driver& driver,
                                                     const CheckerOptions& options) noexcept {
  if (driver.absent_required != nullptr || !Usable(options)) return nullptr;
  std::unique_ptr<DeviceChecker> checker(new (std::nothrow) DeviceChecker());
  if (checker == nullptr) return nullptr;
  checker->shared_.driver = driver;
  checker->shared_.options = options;
  return checker;
}

DeviceChecker::~DeviceChecker() {
  for (const std::atomic<CheckedDevice*>& device : devices_) delete device.load();
}

CheckedDevice* DeviceChecker::Seen(int device) const noexcept {
  if (device < 0 || device >= kDevicesMax) return nullptr;
  return devices_[device].load(std::memory_order_acquire);
}

CheckedDevice* DeviceChecker::DeviceFor(int device) noexcept {
  CheckedDevice* seen = Seen(device);
  if (seen != nullptr || device < 0 || device >= kDevicesMax) return seen;
  auto* made = new (std::nothrow) CheckedDevice(shared_, device);
  if (made == nullptr) return nullptr;
  if (devices_[device].compare_exchange_strong(seen, made, std::memory_order_acq_rel)) return made;
  delete made;
  return seen;
}

Skip DeviceChecker::Count(Skip skip) noexcept {
  if (skip != Skip::kNone) {
    shared_.skips[static_cast<size_t>(skip)].fetch_add(1, std::memory_order_relaxed);
  }
  return skip;
}

template <class Request>
Enqueued DeviceChecker::EnqueueBy(Skip (CheckedDevice::*enqueue)(const Request&, Enqueued*),
                                  const Request& request) noexcept {
  Enqueued enqueued;
  CheckedDevice* device = DeviceFor(request.device);
  enqueued.skip =
      Count(device == nullptr ? Skip::kNoSuchDevice : (device->*enqueue)(request, &enqueued));
  return enqueued;
}

Enqueued DeviceChecker::Enqueue(const CheckRequest& request) noexcept {
  return EnqueueBy<CheckRequest>(&CheckedDevice::Enqueue, request);
}

Enqueued DeviceChecker::EnqueueList(const CheckListRequest& request) noexcept {
  return EnqueueBy<CheckListRequest>(&CheckedDevice::EnqueueList, request);
}

Enqueued DeviceChecker::EnqueueBatch(const CheckBatchRequest& request) noexcept {
  return EnqueueBy<CheckBatchRequest>(&CheckedDevice::EnqueueBatch, request);
}

Skip DeviceChecker::AddStep(int device, CuStream stream) noexcept {
  CheckedDevice* seen = Seen(device);
  return Count(seen == nullptr ? Skip::kNoSuchDevice : seen->AddStep(stream));
}

Enqueued DeviceChecker::Mark(int device, CuStream stream) noexcept {
  Enqueued enqueued;
  CheckedDevice* seen = Seen(device);
  enqueued.skip = Count(seen == nullptr ? Skip::kNoSuchDevice : seen->Mark(stream, &enqueued));
  return enqueued;
}

uint32_t DeviceChecker::CapturedInto(int device, CuStream stream) noexcept {
  CheckedDevice* seen = Seen(device);
  return seen == nullptr ? 0 : seen->CapturedInto(stream);
}

Found DeviceChecker::FoundIn(int device, uint32_t captured_slot, uint64_t after, uint64_t through,
                             CheckResult* result) noexcept {
  const CheckedDevice* seen = Seen(device);
  return seen == nullptr ? Found::kNothing : seen->FoundIn(captured_slot, after, through, result);
}

void DeviceChecker::Forget(int device, uint32_t captured_slot) noexcept {
  CheckedDevice* seen = Seen(device);
  if (seen != nullptr) seen->Forget(captured_slot);
}

Skip DeviceChecker::Flush(int device, CuStream stream) noexcept {
  CheckedDevice* seen = Seen(device);
  return Count(seen == nullptr ? Skip::kNoSuchDevice : seen->Flush(stream));
}

size_t DeviceChecker::Poll(FinishedCallback callback, void* context) noexcept {
  if (polling_.exchange(true, std::memory_order_acquire)) return 0;
  size_t told = 0;
  for (const std::atomic<CheckedDevice*>& slot : devices_) {
    CheckedDevice* device = slot.load(std::memory_order_acquire);
    if (device != nullptr) told += device->Poll(callback, context);
  }
  polling_.store(false, std::memory_order_release);
  return told;
}

bool DeviceChecker::Ready(int device) noexcept {
  CheckedDevice* seen = Seen(device);
  return seen != nullptr && seen->Ready();
}

const char* DeviceChecker::Reason(int device) const noexcept {
  const CheckedDevice* seen = Seen(device);
  return seen == nullptr ? nullptr : seen->Reason();
}

bool DeviceChecker::UsesGivenMemory(int device) const noexcept {
  const CheckedDevice* seen = Seen(device);
  return seen != nullptr && seen->UsesGivenMemory();
}

CheckerCounters DeviceChecker::Counters() const noexcept {
  CheckerCounters counters;
  counters.launches = shared_.launches.load(std::memory_order_relaxed);
  counters.inputs_left_out = shared_.inputs_left_out.load(std::memory_order_relaxed);
  for (int i = 0; i < kSkipCount; ++i) {
    counters.skips[i] = shared_.skips[i].load(std::memory_order_relaxed);
  }
  for (int i = 0; i < kFailureCount; ++i) {
    counters.failures[i] = shared_.failures[i].load(std::memory_order_relaxed);
  }
  return counters;
}

}  // namespace nanwatch::device
