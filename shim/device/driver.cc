// SPDX-License-Identifier: Apache-2.0
#include "shim/device/driver.h"

#include <dlfcn.h>

#include <cstddef>
#include <type_traits>

#include "shim/device/library_lookup.h"

namespace nanwatch::device {
namespace {

static_assert(std::is_standard_layout_v<Driver> && sizeof(void*) == 8);

// The names in the library, not those in programs: cuda.h renames a function whose meaning changed
// to its newest version, so that cuMemAlloc in a program is cuMemAlloc_v2 in the library.
constexpr LibraryEntry kDriverEntries[] = {
    {"cuDriverGetVersion", offsetof(Driver, driver_get_version), Need::kOptional},
    {"cuDeviceGet", offsetof(Driver, device_get)},
    {"cuDeviceGetAttribute", offsetof(Driver, device_get_attribute)},
    {"cuDevicePrimaryCtxGetState", offsetof(Driver, primary_context_get_state)},
    {"cuDevicePrimaryCtxRetain", offsetof(Driver, primary_context_retain)},
    {"cuCtxGetCurrent", offsetof(Driver, context_get_current)},
    {"cuCtxGetDevice", offsetof(Driver, context_get_device), Need::kOptional},
    {"cuCtxPushCurrent_v2", offsetof(Driver, context_push_current)},
    {"cuCtxPopCurrent_v2", offsetof(Driver, context_pop_current)},
    {"cuThreadExchangeStreamCaptureMode", offsetof(Driver, thread_exchange_capture_mode)},
    {"cuModuleLoadDataEx", offsetof(Driver, module_load_data_ex)},
    {"cuModuleGetFunction", offsetof(Driver, module_get_function)},
    {"cuMemGetInfo_v2", offsetof(Driver, mem_get_info), Need::kOptional},
    {"cuMemAlloc_v2", offsetof(Driver, mem_alloc)},
    {"cuMemsetD8Async", offsetof(Driver, memset_d8_async)},
    {"cuMemHostRegister_v2", offsetof(Driver, mem_host_register), Need::kOptional},
    {"cuMemHostAlloc", offsetof(Driver, mem_host_alloc)},
    {"cuMemHostGetDevicePointer_v2", offsetof(Driver, mem_host_get_device_pointer)},
    {"cuStreamCreate", offsetof(Driver, stream_create)},
    {"cuStreamIsCapturing", offsetof(Driver, stream_is_capturing)},
    {"cuStreamGetId", offsetof(Driver, stream_get_id), Need::kOptional},
    {"cuStreamGetCaptureInfo_v2", offsetof(Driver, stream_get_capture_info), Need::kOptional},
    {"cuStreamGetCaptureInfo_v3", offsetof(Driver, stream_get_capture_info_v3), Need::kInstead},
    {"cuLaunchKernel", offsetof(Driver, launch_kernel)},
};

}  // namespace

Driver LookUpDriver(DriverLookup lookup, void* context) noexcept {
  Driver driver;
  for (const LibraryEntry& entry : kDriverEntries) {
    const void* const function = SetEntry(entry, lookup, context, driver);
    if (entry.need == Need::kInstead) continue;
    const char*& absent =
        entry.need == Need::kRequired ? driver.absent_required : driver.absent_optional;
    if (function == nullptr && absent == nullptr) absent = entry.name;
  }
  return driver;
}

std::optional<Driver> DriverOfProcess() noexcept {
  // The handle is kept: the library must not go away under the pointers.
  void* const library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) return std::nullopt;
  return LookUpDriver(&LookUpInLibrary, library);
}

}  // namespace nanwatch::device
