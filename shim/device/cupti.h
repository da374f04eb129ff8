// SPDX-License-Identifier: Apache-2.0
// The only door to CUPTI: the functions of the libcupti that the process has mapped itself, which
// is where a libtorch built for CUDA links to (by kineto).
//
// Nothing is linked and nothing is loaded. Types, numbers and layouts are declared here, because
// the observer is built where no CUDA toolkit is. Their source are cupti_activity.h,
// cupti_activity_deprecated.h, cupti_callbacks.h, cupti_result.h and the two headers of callback
// ids of CUDA 13.0; tests/shim/device compares where there is a toolkit.
//
// Records. A kernel's record is a struct with a version, CUpti_ActivityKernel10 in CUDA 13.0, that
// has grown at its end only: what stands in CuptiKernel has had the same place since Kernel6, which
// is older than CUDA 12. How long a record is nobody here needs to know: cuptiActivityGetNextRecord
// steps from one to the next.
//
// What is not among these functions cannot be called: cuptiFinalize, which takes CUPTI away from
// everybody in the process, is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "shim/device/driver.h"

namespace nanwatch::device {

using CuptiResult = int32_t;                          // CUptiResult
using CuptiSubscriber = struct CUpti_Subscriber_st*;  // CUpti_SubscriberHandle
using CuptiCallback = void (*)(void* context, int32_t domain, uint32_t id, const void* seen);
using CuptiBufferRequest = void (*)(uint8_t** buffer, size_t* bytes, size_t* records_max);
using CuptiBufferDone = void (*)(CuContext context, uint32_t stream, uint8_t* buffer, size_t bytes,
                                 size_t bytes_valid);

inline constexpr CuptiResult kCuptiSuccess = 0;
inline constexpr CuptiResult kCuptiMaxLimitReached = 12;
inline constexpr CuptiResult kCuptiQueueEmpty = 18;
inline constexpr CuptiResult kCuptiInsufficientPrivileges = 35;
inline constexpr CuptiResult kCuptiMultipleSubscribers = 39;

// CUpti_ActivityKind
inline constexpr int32_t kCuptiDriverApi = 4;
inline constexpr int32_t kCuptiRuntimeApi = 5;
inline constexpr int32_t kCuptiConcurrentKernel = 10;  // 3, KIND_KERNEL, would have kernels wait
inline constexpr int32_t kCuptiExternalCorrelation = 39;

// CUpti_ExternalCorrelationKind. Kineto's are CUSTOM0 and CUSTOM1.
inline constexpr int32_t kCuptiOurIds = 5;  // CUSTOM2

inline constexpr uint32_t kCuptiFlushForced = 1;  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

// Callback ids of the calls that launch kernels, with their forms for per-thread default streams:
// cudaLaunchKernel, cudaLaunchCooperativeKernel, cudaLaunchCooperativeKernelMultiDevice,
// cudaLaunchKernelExC and __cudaLaunchKernel, which is what `<<<>>>` compiles to from CUDA 13 on;
// and cuLaunchKernel, cuLaunchCooperativeKernel, cuLaunchCooperativeKernelMultiDevice and
// cuLaunchKernelEx.
inline constexpr uint32_t kCuptiRuntimeLaunches[] = {211, 214, 269, 270, 272, 430, 431};
inline constexpr uint32_t kCuptiRuntimeLaunchesSince13[] = {505, 506};
inline constexpr uint32_t kCuptiDriverLaunches[] = {307, 442, 477, 478, 480, 652, 653};

// What every record begins with.
struct CuptiRecord {
  int32_t kind;
};

// The beginning of CUpti_ActivityKernel6 and later.
struct CuptiKernel {
  int32_t kind;
  uint32_t unused0[3];
  uint64_t start;  // ns; 0 together with `end`: not known
  uint64_t end;
  uint32_t unused1[15];
  uint32_t correlation;  // of the call that launched it; of a graph's kernels, that of the graph
  uint64_t unused2;
  const char* name;  // mangled
  uint32_t unused3[11];
  uint32_t graph;  // 0: launched by itself
};
static_assert(offsetof(CuptiKernel, start) == 16 && offsetof(CuptiKernel, end) == 24 &&
              offsetof(CuptiKernel, correlation) == 92 && offsetof(CuptiKernel, name) == 104 &&
              offsetof(CuptiKernel, graph) == 156);

// CUpti_ActivityExternalCorrelation: a call was made while its thread had pushed this id.
struct CuptiExternalId {
  int32_t kind;
  int32_t id_kind;
  uint64_t id;
  uint32_t correlation;  // of the call
  uint32_t unused;
};
static_assert(sizeof(CuptiExternalId) == 24 && offsetof(CuptiExternalId, correlation) == 16);

// CUpti_ActivityAPI: a call, of kCuptiDriverApi or kCuptiRuntimeApi.
struct CuptiCall {
  int32_t kind;
  uint32_t id;
  uint64_t start;
  uint64_t end;
  uint32_t process;
  uint32_t thread;
  uint32_t correlation;
  uint32_t result;
};
static_assert(sizeof(CuptiCall) == 40 && offsetof(CuptiCall, correlation) == 32);

// Plain pointers, null where the process's CUPTI has no such function. Copyable, any thread.
struct Cupti {
  CuptiResult (*get_version)(uint32_t* version) = nullptr;
  CuptiResult (*subscribe)(CuptiSubscriber* subscriber, CuptiCallback callback,
                           void* context) = nullptr;
  CuptiResult (*unsubscribe)(CuptiSubscriber subscriber) = nullptr;
  CuptiResult (*register_callbacks)(CuptiBufferRequest request, CuptiBufferDone done) = nullptr;
  CuptiResult (*enable)(int32_t kind) = nullptr;
  CuptiResult (*disable)(int32_t kind) = nullptr;
  // Null before CUDA 12.5, where the calls of a kind are all recorded or none is.
  CuptiResult (*enable_runtime_call)(uint32_t callback_id, uint8_t on) = nullptr;
  CuptiResult (*enable_driver_call)(uint32_t callback_id, uint8_t on) = nullptr;
  CuptiResult (*push_id)(int32_t id_kind, uint64_t id) = nullptr;
  CuptiResult (*pop_id)(int32_t id_kind, uint64_t* id) = nullptr;
  CuptiResult (*flush_all)(uint32_t flags) = nullptr;
  CuptiResult (*next_record)(uint8_t* buffer, size_t bytes_valid, CuptiRecord** record) = nullptr;
  CuptiResult (*dropped_records)(CuContext context, uint32_t stream, size_t* count) = nullptr;

  // The name of the first absent function that is needed, or null.
  const char* absent_required = nullptr;
};

// Asks for every function that Cupti holds, and for no other.
[[nodiscard]] Cupti LookUpCupti(DriverLookup lookup, void* context) noexcept;

// The CUPTI of this process; nothing if it has mapped none, or that of two CUDA majors, of which
// nobody knows which one a profiler would use.
[[nodiscard]] std::optional<Cupti> CuptiOfProcess() noexcept;

// Whether this answer of cuptiGetVersion is of CUDA 12.0 to 13.x. It counts from 19 for 12.0 to 28
// for 12.9; from 13.0 on it is MAJOR * 10000 + MINOR * 100 + ... (cupti_version.h).
[[nodiscard]] constexpr bool IsKnownCupti(uint32_t version) noexcept {
  return (version >= 19 && version < 100) || (version >= 130000 && version < 140000);
}

// Whether this CUPTI knows kCuptiRuntimeLaunchesSince13.
[[nodiscard]] constexpr bool HasCallsOf13(uint32_t version) noexcept { return version >= 130000; }

}  // namespace nanwatch::device
