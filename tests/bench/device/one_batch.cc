// SPDX-License-Identifier: Apache-2.0
// For callgrind: launches of batches of 16 tensors, inside one function by which it can be told to
// count (instructions.cmake). The driver's functions do nothing, so that what is counted is ours.
#include <cstdio>
#include <cstdlib>
#include <span>

#include "shim/device/device_checker.h"

namespace {

using namespace nanwatch::device;

constexpr int kInARow = 500;  // less than the slots of a stream
constexpr int kRows = 10;

template <class Handle>
Handle Any() {
  static char anything;
  return reinterpret_cast<Handle>(&anything);
}

// As the kernel does with the batch's progress; the step's launch has another parameter.
CuResult Launched(CuFunction, uint32_t, uint32_t, uint32_t, uint32_t threads, uint32_t, uint32_t,
                  uint32_t, CuStream, void** parameters, void**) {
  if (threads == 1) return kCuSuccess;
  const auto* head = static_cast<const LaunchHead*>(parameters[0]);
  if (head->progress != 0) *reinterpret_cast<uint64_t*>(head->progress) = head->ticket;
  return kCuSuccess;
}

Driver IdleDriver() {
  Driver driver;
  driver.device_get = [](CuDevice* device, int) { return CuResult{*device = 0}; };
  driver.device_get_attribute = [](int* value, int32_t, CuDevice) {
    *value = 132;
    return kCuSuccess;
  };
  driver.primary_context_get_state = [](CuDevice, uint32_t* flags, int* active) {
    *flags = 0;
    *active = 1;
    return kCuSuccess;
  };
  driver.primary_context_retain = [](CuContext* context, CuDevice) {
    *context = Any<CuContext>();
    return kCuSuccess;
  };
  driver.context_get_current = [](CuContext* context) {
    *context = Any<CuContext>();
    return kCuSuccess;
  };
  driver.thread_exchange_capture_mode = [](int32_t*) { return kCuSuccess; };
  driver.module_load_data_ex = [](CuModule* module, const void*, uint32_t, int32_t*, void**) {
    *module = Any<CuModule>();
    return kCuSuccess;
  };
  driver.module_get_function = [](CuFunction* function, CuModule, const char*) {
    *function = Any<CuFunction>();
    return kCuSuccess;
  };
  driver.mem_alloc = [](CuDeviceAddress* address, size_t) {
    *address = 4096;
    return kCuSuccess;
  };
  driver.memset_d8_async = [](CuDeviceAddress, unsigned char, size_t, CuStream) {
    return kCuSuccess;
  };
  driver.mem_host_alloc = [](void** memory, size_t bytes, uint32_t) {
    *memory = std::calloc(1, bytes);
    return kCuSuccess;
  };
  driver.mem_host_get_device_pointer = [](CuDeviceAddress* address, void* memory, uint32_t) {
    *address = reinterpret_cast<uintptr_t>(memory);
    return kCuSuccess;
  };
  driver.stream_create = [](CuStream* stream, uint32_t) {
    *stream = Any<CuStream>();
    return kCuSuccess;
  };
  driver.stream_is_capturing = [](CuStream, int32_t* status) {
    return CuResult{*status = kCuCaptureStatusNone};
  };
  driver.stream_get_id = [](CuStream, unsigned long long* id) {
    *id = 7;
    return kCuSuccess;
  };
  driver.launch_kernel = &Launched;
  return driver;
}

}  // namespace

extern "C" [[gnu::noinline]] uint64_t LaunchMany(DeviceChecker* checker,
                                                 const CheckBatchRequest* request) {
  uint64_t launches = 0;
  for (int i = 0; i < kInARow; ++i) launches += checker->EnqueueBatch(*request).launches;
  return launches;
}

int main() {
  CheckerOptions options;
  options.image = "text";
  options.image_bytes = 4;
  options.grid_for = [](const LaunchHead&, const DeviceTensor*, int) { return uint32_t{1}; };
  options.list_grid_for = [](const ListLaunch&, int) { return uint32_t{1}; };
  options.progress_after_ns = 1'000'000;
  const auto checker = DeviceChecker::Create(IdleDriver(), options);
  if (checker == nullptr) return 1;
  BatchEntry entries[16], others[8];
  for (uint64_t i = 0; i < std::size(entries); ++i) {
    entries[i] = MakeEntry(4096 * (i + 1), 1000 << i, 2);
  }
  for (BatchEntry& other : others) other = MakeEntry(4096, 1000, 2);
  const CheckBatchRequest request = {
      .stream = Any<CuStream>(), .device = 0, .entries = entries, .others = others};
  // Sets the device up.
  if (checker->EnqueueBatch(request).skip != Skip::kNone) return 1;
  uint64_t launches = 0, told = 0;
  for (int row = 0; row < kRows; ++row) {
    launches += LaunchMany(checker.get(), &request);
    told += checker->Poll([](void*, const Finished&) {}, nullptr);
  }
  std::printf("%llu launches, %llu told\n", static_cast<unsigned long long>(launches),
              static_cast<unsigned long long>(told));
  return launches == uint64_t{kInARow} * kRows && told > launches / 2 ? 0 : 1;
}
