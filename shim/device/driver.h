// SPDX-License-Identifier: Apache-2.0
// The only door to CUDA: the functions of the driver library that the process has loaded itself.
//
// Nothing is linked and nothing is loaded: a job without a GPU has no libcuda.so.1, and one with it
// has initialised it before the first tensor is on a device. Types and numbers are declared here,
// because the observer is built where no CUDA toolkit is. Their source is cuda.h of CUDA 12.0;
// those of 12.1, 12.8 and 13.0 say the same (226 and 721: of 13.0).
// tests/shim/device compares where there is one.
//
// What is not among these functions cannot be called: none of them is there to wait for a stream,
// an event or a context, none copies, none frees (freeing waits), and none takes an error that
// belongs to the host thread (the driver's functions return theirs, and the runtime's last error
// is untouched). Those that set a device up may wait all the same, once for each device: with lazy
// loading, the default on Linux from CUDA 12.2 on, a kernel is loaded by cuModuleGetFunction,
// which by NVIDIA's Programming Guide may have to synchronise the context, so that it waits for
// work that is under way; allocating and registering memory may, too. Not tried on a GPU.
//
// The plain names are taken, not those with the suffix _ptsz: a stream of 0 is the legacy default
// stream, as it is to libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace nanwatch::device {

using CuResult = int32_t;            // CUresult
using CuDevice = int32_t;            // CUdevice
using CuDeviceAddress = uint64_t;    // CUdeviceptr, on 64-bit hosts
using CuContext = struct CUctx_st*;  // the tags are those of cuda.h
using CuModule = struct CUmod_st*;
using CuFunction = struct CUfunc_st*;
using CuStream = struct CUstream_st*;

inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuInvalidValue = 1;
inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuNotInitialized = 3;
inline constexpr CuResult kCuDeinitialized = 4;
inline constexpr CuResult kCuInvalidImage = 200;
inline constexpr CuResult kCuInvalidContext = 201;
inline constexpr CuResult kCuNoBinaryForGpu = 209;
inline constexpr CuResult kCuEccUncorrectable = 214;
inline constexpr CuResult kCuInvalidPtx = 218;
inline constexpr CuResult kCuNvlinkUncorrectable = 220;
inline constexpr CuResult kCuJitCompilationDisabled = 223;
inline constexpr CuResult kCuContained = 226;
inline constexpr CuResult kCuInvalidHandle = 400;
inline constexpr CuResult kCuNotFound = 500;
inline constexpr CuResult kCuIllegalAddress = 700;
inline constexpr CuResult kCuLaunchTimeout = 702;
inline constexpr CuResult kCuContextIsDestroyed = 709;
inline constexpr CuResult kCuAssert = 710;
inline constexpr CuResult kCuHostMemoryAlreadyRegistered = 712;
inline constexpr CuResult kCuHardwareStackError = 714;
inline constexpr CuResult kCuInvalidPc = 718;  // 714 to 719: what a kernel did ruined the context
inline constexpr CuResult kCuLaunchFailed = 719;
inline constexpr CuResult kCuTensorMemoryLeak = 721;
inline constexpr CuResult kCuNotPermitted = 800;
inline constexpr CuResult kCuNotSupported = 801;
inline constexpr CuResult kCuMpsClientTerminated = 810;
inline constexpr CuResult kCuStreamCaptureUnsupported = 900;
inline constexpr CuResult kCuStreamCaptureInvalidated = 901;
inline constexpr CuResult kCuStreamCaptureImplicit = 906;
inline constexpr CuResult kCuStreamCaptureWrongThread = 908;  // 900 to 908: about a capture
inline constexpr CuResult kCuExternalDevice = 911;
inline constexpr CuResult kCuUnknown = 999;

inline constexpr uint32_t kCuMemHostPortable = 1;   // also CU_MEMHOSTREGISTER_PORTABLE
inline constexpr uint32_t kCuMemHostDeviceMap = 2;  // also CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr uint32_t kCuStreamNonBlocking = 1;
inline constexpr int32_t kCuMultiprocessorCount = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
inline constexpr int32_t kCuCaptureStatusNone = 0;
inline constexpr int32_t kCuCaptureStatusActive = 1;
inline constexpr int32_t kCuCaptureStatusInvalidated = 2;
inline constexpr int32_t kCuCaptureModeGlobal = 0;
inline constexpr int32_t kCuCaptureModeThreadLocal = 1;
inline constexpr int32_t kCuCaptureModeRelaxed = 2;
inline constexpr int32_t kCuJitErrorLogBuffer = 5;
inline constexpr int32_t kCuJitErrorLogBufferSizeBytes = 6;

// The handles that name a default stream: 0 and 1 are the legacy one, 2 is the calling thread's.
inline constexpr uintptr_t kCuStreamLegacy = 1;
inline constexpr uintptr_t kCuStreamPerThread = 2;

// Plain pointers, null where the process's driver has no such function. Copyable, any thread.
struct Driver {
  CuResult (*driver_get_version)(int* version) = nullptr;
  CuResult (*device_get)(CuDevice* device, int ordinal) = nullptr;
  CuResult (*device_get_attribute)(int* value, int32_t attribute, CuDevice device) = nullptr;
  CuResult (*primary_context_get_state)(CuDevice device, uint32_t* flags, int* active) = nullptr;
  CuResult (*primary_context_retain)(CuContext* context, CuDevice device) = nullptr;
  CuResult (*context_get_current)(CuContext* context) = nullptr;
  CuResult (*context_get_device)(CuDevice* device) = nullptr;
  CuResult (*context_push_current)(CuContext context) = nullptr;
  CuResult (*context_pop_current)(CuContext* context) = nullptr;
  CuResult (*thread_exchange_capture_mode)(int32_t* mode) = nullptr;
  CuResult (*module_load_data_ex)(CuModule* module, const void* image, uint32_t option_count,
                                  int32_t* options, void** option_values) = nullptr;
  CuResult (*module_get_function)(CuFunction* function, CuModule module,
                                  const char* name) = nullptr;
  CuResult (*mem_get_info)(size_t* free, size_t* total) = nullptr;
  CuResult (*mem_alloc)(CuDeviceAddress* address, size_t bytes) = nullptr;
  CuResult (*memset_d8_async)(CuDeviceAddress address, unsigned char value, size_t bytes,
                              CuStream stream) = nullptr;
  CuResult (*mem_host_register)(void* memory, size_t bytes, uint32_t flags) = nullptr;
  CuResult (*mem_host_alloc)(void** memory, size_t bytes, uint32_t flags) = nullptr;
  CuResult (*mem_host_get_device_pointer)(CuDeviceAddress* address, void* memory,
                                          uint32_t flags) = nullptr;
  CuResult (*stream_create)(CuStream* stream, uint32_t flags) = nullptr;
  CuResult (*stream_is_capturing)(CuStream stream, int32_t* status) = nullptr;
  CuResult (*stream_get_id)(CuStream stream, unsigned long long* id) = nullptr;
  // Pointers behind `id` may be null. The third form, of CUDA 12.3, stands in for the second.
  CuResult (*stream_get_capture_info)(CuStream stream, int32_t* status, uint64_t* id, void** graph,
                                      const void** dependencies,
                                      size_t* dependency_count) = nullptr;
  CuResult (*stream_get_capture_info_v3)(CuStream stream, int32_t* status, uint64_t* id,
                                         void** graph, const void** dependencies,
                                         const void** edges, size_t* dependency_count) = nullptr;
  CuResult (*launch_kernel)(CuFunction function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z,
                            uint32_t block_x, uint32_t block_y, uint32_t block_z,
                            uint32_t shared_bytes, CuStream stream, void** parameters,
                            void** extra) = nullptr;

  // The name of the first absent function without which nothing can be checked, or null. The
  // others are cuDriverGetVersion (no version to tell), cuCtxGetDevice (green contexts are not
  // known), cuMemGetInfo (memory is taken for scarce), cuMemHostRegister (results lie in memory of
  // the driver's), cuStreamGetId, of CUDA 12.0 (streams are told apart by their handles), and
  // cuStreamGetCaptureInfo, in the forms that it has from CUDA 11.3 and 12.3 on (with neither,
  // nothing in a graph is checked).
  const char* absent_required = nullptr;
  // The first absent one of those others, or null. Of the two forms the first is meant.
  const char* absent_optional = nullptr;
};

// Finds a function by name; null: there is none.
using DriverLookup = void* (*)(void* context, const char* name);

// Asks for every function that Driver holds, and for no other.
[[nodiscard]] Driver LookUpDriver(DriverLookup lookup, void* context) noexcept;

// The driver of this process; nothing if it has not loaded one.
[[nodiscard]] std::optional<Driver> DriverOfProcess() noexcept;

// True for a result after which no call in that context succeeds again: those of which cuda.h says
// that "any further CUDA work will return the same error", and kCuUnknown, which may mean anything
// and is what drivers answer once a GPU has fallen off its bus.
[[nodiscard]] constexpr bool MeansContextLost(CuResult result) noexcept {
  switch (result) {
    case kCuDeinitialized:
    case kCuEccUncorrectable:
    case kCuNvlinkUncorrectable:
    case kCuContained:
    case kCuIllegalAddress:
    case kCuLaunchTimeout:
    case kCuContextIsDestroyed:
    case kCuAssert:
    case kCuTensorMemoryLeak:
    case kCuMpsClientTerminated:
    case kCuExternalDevice:
    case kCuUnknown:
      return true;
    default:
      return result >= kCuHardwareStackError && result <= kCuLaunchFailed;
  }
}

// True for a result that says something of a capture in progress and nothing of the device.
[[nodiscard]] constexpr bool MeansCapture(CuResult result) noexcept {
  return result >= kCuStreamCaptureUnsupported && result <= kCuStreamCaptureWrongThread;
}

}  // namespace nanwatch::device
