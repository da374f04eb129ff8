// SPDX-License-Identifier: Apache-2.0
// Our own declarations of the driver's functions and numbers against the toolkit's header.
#include <gtest/gtest.h>

#include "shim/device/driver.h"
#include "tests/shim/device/same_call.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#define NANWATCH_HAS_CUDA_HEADER 1
#else
#define NANWATCH_HAS_CUDA_HEADER 0
#endif

namespace nanwatch::device {
namespace {

#if NANWATCH_HAS_CUDA_HEADER

constexpr Driver kDriver;
#define NANWATCH_SAME_CALL(ours, theirs) \
  static_assert(SameCall(kDriver.ours, static_cast<decltype(&(theirs))>(nullptr)))

NANWATCH_SAME_CALL(driver_get_version, cuDriverGetVersion);
NANWATCH_SAME_CALL(device_get, cuDeviceGet);
NANWATCH_SAME_CALL(device_get_attribute, cuDeviceGetAttribute);
NANWATCH_SAME_CALL(primary_context_get_state, cuDevicePrimaryCtxGetState);
NANWATCH_SAME_CALL(primary_context_retain, cuDevicePrimaryCtxRetain);
NANWATCH_SAME_CALL(context_get_current, cuCtxGetCurrent);
NANWATCH_SAME_CALL(context_get_device, cuCtxGetDevice);
NANWATCH_SAME_CALL(mem_get_info, cuMemGetInfo);
NANWATCH_SAME_CALL(context_push_current, cuCtxPushCurrent);
NANWATCH_SAME_CALL(context_pop_current, cuCtxPopCurrent);
NANWATCH_SAME_CALL(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
NANWATCH_SAME_CALL(module_load_data_ex, cuModuleLoadDataEx);
NANWATCH_SAME_CALL(module_get_function, cuModuleGetFunction);
NANWATCH_SAME_CALL(mem_alloc, cuMemAlloc);
NANWATCH_SAME_CALL(memset_d8_async, cuMemsetD8Async);
NANWATCH_SAME_CALL(mem_host_register, cuMemHostRegister);
NANWATCH_SAME_CALL(mem_host_alloc, cuMemHostAlloc);
NANWATCH_SAME_CALL(mem_host_get_device_pointer, cuMemHostGetDevicePointer);
NANWATCH_SAME_CALL(stream_create, cuStreamCreate);
NANWATCH_SAME_CALL(stream_is_capturing, cuStreamIsCapturing);
NANWATCH_SAME_CALL(stream_get_id, cuStreamGetId);
NANWATCH_SAME_CALL(launch_kernel, cuLaunchKernel);
#if CUDA_VERSION < 13000  // later headers declare its third form only
NANWATCH_SAME_CALL(stream_get_capture_info, cuStreamGetCaptureInfo);
#else
NANWATCH_SAME_CALL(stream_get_capture_info_v3, cuStreamGetCaptureInfo);
#endif

// cuda.h gives a changed function a new name; ours are those that its macros stand for.
#define NANWATCH_TEXT_OF(name) #name
#define NANWATCH_TEXT(name) NANWATCH_TEXT_OF(name)

TEST(CudaHeader, RenamesTheFunctionsThatWeAskForByTheirNewNames) {
  EXPECT_STREQ(NANWATCH_TEXT(cuCtxPushCurrent), "cuCtxPushCurrent_v2");
  EXPECT_STREQ(NANWATCH_TEXT(cuCtxPopCurrent), "cuCtxPopCurrent_v2");
  EXPECT_STREQ(NANWATCH_TEXT(cuMemAlloc), "cuMemAlloc_v2");
  EXPECT_STREQ(NANWATCH_TEXT(cuMemHostRegister), "cuMemHostRegister_v2");
  EXPECT_STREQ(NANWATCH_TEXT(cuMemHostGetDevicePointer), "cuMemHostGetDevicePointer_v2");
  EXPECT_STREQ(NANWATCH_TEXT(cuLaunchKernel), "cuLaunchKernel");
  EXPECT_STREQ(NANWATCH_TEXT(cuMemsetD8Async), "cuMemsetD8Async");
  EXPECT_STREQ(NANWATCH_TEXT(cuStreamIsCapturing), "cuStreamIsCapturing");
  EXPECT_STREQ(NANWATCH_TEXT(cuStreamGetId), "cuStreamGetId");
#if CUDA_VERSION < 13000
  EXPECT_STREQ(NANWATCH_TEXT(cuStreamGetCaptureInfo), "cuStreamGetCaptureInfo_v2");
#else
  EXPECT_STREQ(NANWATCH_TEXT(cuStreamGetCaptureInfo), "cuStreamGetCaptureInfo_v3");
#endif
}

TEST(CudaHeader, HasTheNumbersThatWeWroteDown) {
  EXPECT_EQ(kCuSuccess, CUDA_SUCCESS);
  EXPECT_EQ(kCuInvalidValue, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(kCuOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kCuNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(kCuDeinitialized, CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(kCuInvalidImage, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(kCuInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(kCuNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(kCuEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(kCuInvalidPtx, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(kCuNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
  EXPECT_EQ(kCuJitCompilationDisabled, CUDA_ERROR_JIT_COMPILATION_DISABLED);
  EXPECT_EQ(kCuInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(kCuNotFound, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(kCuIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(kCuLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(kCuContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(kCuAssert, CUDA_ERROR_ASSERT);
  EXPECT_EQ(kCuHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(kCuHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
  EXPECT_EQ(kCuInvalidPc, CUDA_ERROR_INVALID_PC);
  EXPECT_EQ(kCuLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(kCuNotPermitted, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(kCuNotSupported, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(kCuMpsClientTerminated, CUDA_ERROR_MPS_CLIENT_TERMINATED);
#if CUDA_VERSION >= 13000
  EXPECT_EQ(kCuContained, CUDA_ERROR_CONTAINED);
  EXPECT_EQ(kCuTensorMemoryLeak, CUDA_ERROR_TENSOR_MEMORY_LEAK);
#endif
  EXPECT_EQ(kCuExternalDevice, CUDA_ERROR_EXTERNAL_DEVICE);
  EXPECT_EQ(kCuUnknown, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(kCuStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(kCuStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(kCuStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(kCuStreamCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  EXPECT_EQ(kCuMemHostPortable, CU_MEMHOSTREGISTER_PORTABLE);
  EXPECT_EQ(kCuMemHostPortable, CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(kCuMemHostDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
  EXPECT_EQ(kCuMemHostDeviceMap, CU_MEMHOSTALLOC_DEVICEMAP);
  EXPECT_EQ(kCuStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(kCuMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(kCuCaptureStatusNone, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(kCuCaptureStatusActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(kCuCaptureStatusInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(kCuCaptureModeGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(kCuCaptureModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(kCuCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(kCuJitErrorLogBuffer, CU_JIT_ERROR_LOG_BUFFER);
  EXPECT_EQ(kCuJitErrorLogBufferSizeBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  EXPECT_EQ(kCuStreamLegacy, reinterpret_cast<uintptr_t>(CU_STREAM_LEGACY));
  EXPECT_EQ(kCuStreamPerThread, reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD));
}

#else

TEST(CudaHeader, HasTheNumbersThatWeWroteDown) { GTEST_SKIP() << "no cuda.h on this machine"; }

#endif

}  // namespace
}  // namespace nanwatch::device
