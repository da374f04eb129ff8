#include "shim/device/driver.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "shim/device/library_lookup.h"

namespace nanwatch::device {
namespace {

static_assert(std::is_standard_layout_v<Driver> && sizeof(void*) == 8);

// The names in the library, not those in programs: cuda.h renames a function whose meaning changed
// to its newest version, so that cuMemAlloc in a program is cuMemAlloc_v2 in the library.
struct DriverEntry {
  const char* name;
  size_t offset;  // of the pointer in Driver
  bool required;
  bool instead = false;  // where the one before is absent
};

constexpr DriverEntry kDriverEntries[] = {
    {"cuDriverGetVersion", offsetof(Driver, driver_get_version), false},
    {"cuDeviceGet", offsetof(Driver, device_get), true},
    {"cuDeviceGetAttribute", offsetof(Driver, device_get_attribute), true},
    {"cuDevicePrimaryCtxGetState", offsetof(Driver, primary_context_get_state), true},
    {"cuDevicePrimaryCtxRetain", offsetof(Driver, primary_context_retain), true},
    {"cuCtxGetCurrent", offsetof(Driver, context_get_current), true},
    {"cuCtxGetDevice", offsetof(Driver, context_get_device), false},
    {"cuCtxPushCurrent_v2", offsetof(Driver, context_push_current), true},
    {"cuCtxPopCurrent_v2", offsetof(Driver, context_pop_current), true},
    {"cuThreadExchangeStreamCaptureMode", offsetof(Driver, thread_exchange_capture_mode), true},
    {"cuModuleLoadDataEx", offsetof(Driver, module_load_data_ex), true},
    {"cuModuleGetFunction", offsetof(Driver, module_get_function), true},
    {"cuMemAlloc_v2", offsetof(Driver, mem_alloc), true},
    {"cuMemsetD8Async", offsetof(Driver, memset_d8_async), true},
    {"cuMemHostRegister_v2", offsetof(Driver, mem_host_register), false},
    {"cuMemHostAlloc", offsetof(Driver, mem_host_alloc), true},
    {"cuMemHostGetDevicePointer_v2", offsetof(Driver, mem_host_get_device_pointer), true},
    {"cuStreamCreate", offsetof(Driver, stream_create), true},
    {"cuStreamIsCapturing", offsetof(Driver, stream_is_capturing), true},
    {"cuStreamGetId", offsetof(Driver, stream_get_id), false},
    {"cuStreamGetCaptureInfo_v2", offsetof(Driver, stream_get_capture_info), false},
    {"cuStreamGetCaptureInfo_v3", offsetof(Driver, stream_get_capture_info_v3), false, true},
    {"cuLaunchKernel", offsetof(Driver, launch_kernel), true},
};

}  // namespace

Driver LookUpDriver(DriverLookup lookup, void* context) noexcept {
  Driver driver;
  for (const DriverEntry& entry : kDriverEntries) {
    void* const function = lookup(context, entry.name);
    std::memcpy(reinterpret_cast<char*>(&driver) + entry.offset, &function, sizeof function);
    if (entry.instead) continue;
    const char*& absent = entry.required ? driver.absent_required : driver.absent_optional;
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
