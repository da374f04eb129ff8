// SPDX-License-Identifier: Apache-2.0
// Our own declarations of CUPTI's functions, numbers and records against the toolkit's headers.
#include <gtest/gtest.h>

#include "shim/device/cupti.h"
#include "tests/shim/device/same_call.h"

#if __has_include(<cupti.h>) && __has_include(<cupti_activity_deprecated.h>)
#include <cupti.h>
#define NANWATCH_HAS_CUPTI_HEADER 1
#else
#define NANWATCH_HAS_CUPTI_HEADER 0
#endif

namespace nanwatch::device {
namespace {

#if NANWATCH_HAS_CUPTI_HEADER

constexpr Cupti kCupti;
#define NANWATCH_SAME_CALL(ours, theirs) \
  static_assert(SameCall(kCupti.ours, static_cast<decltype(&(theirs))>(nullptr)))

NANWATCH_SAME_CALL(get_version, cuptiGetVersion);
NANWATCH_SAME_CALL(subscribe, cuptiSubscribe);
NANWATCH_SAME_CALL(unsubscribe, cuptiUnsubscribe);
NANWATCH_SAME_CALL(register_callbacks, cuptiActivityRegisterCallbacks);
NANWATCH_SAME_CALL(enable, cuptiActivityEnable);
NANWATCH_SAME_CALL(disable, cuptiActivityDisable);
NANWATCH_SAME_CALL(enable_runtime_call, cuptiActivityEnableRuntimeApi);
NANWATCH_SAME_CALL(enable_driver_call, cuptiActivityEnableDriverApi);
NANWATCH_SAME_CALL(push_id, cuptiActivityPushExternalCorrelationId);
NANWATCH_SAME_CALL(pop_id, cuptiActivityPopExternalCorrelationId);
NANWATCH_SAME_CALL(flush_all, cuptiActivityFlushAll);
NANWATCH_SAME_CALL(next_record, cuptiActivityGetNextRecord);
NANWATCH_SAME_CALL(dropped_records, cuptiActivityGetNumDroppedRecords);
static_assert(SameCall(CuptiBufferRequest{}, CUpti_BuffersCallbackRequestFunc{}));
static_assert(SameCall(CuptiBufferDone{}, CUpti_BuffersCallbackCompleteFunc{}));
static_assert(SameCall(CuptiCallback{}, CUpti_CallbackFunc{}));

template <class Theirs>
constexpr bool SameKernel() {
  return offsetof(CuptiKernel, kind) == offsetof(Theirs, kind) &&
         offsetof(CuptiKernel, start) == offsetof(Theirs, start) &&
         offsetof(CuptiKernel, end) == offsetof(Theirs, end) &&
         offsetof(CuptiKernel, correlation) == offsetof(Theirs, correlationId) &&
         offsetof(CuptiKernel, name) == offsetof(Theirs, name) &&
         offsetof(CuptiKernel, graph) == offsetof(Theirs, graphId) &&
         sizeof(CuptiKernel) <= sizeof(Theirs);
}
static_assert(SameKernel<CUpti_ActivityKernel6>());
static_assert(SameKernel<CUpti_ActivityKernel7>());
static_assert(SameKernel<CUpti_ActivityKernel8>());
static_assert(SameKernel<CUpti_ActivityKernel9>());
#if CUPTI_API_VERSION >= 130000
static_assert(SameKernel<CUpti_ActivityKernel10>());
#endif

using External = CUpti_ActivityExternalCorrelation;
static_assert(sizeof(CuptiExternalId) == sizeof(External) &&
              offsetof(CuptiExternalId, id_kind) == offsetof(External, externalKind) &&
              offsetof(CuptiExternalId, id) == offsetof(External, externalId) &&
              offsetof(CuptiExternalId, correlation) == offsetof(External, correlationId));

static_assert(sizeof(CuptiCall) == sizeof(CUpti_ActivityAPI) &&
              offsetof(CuptiCall, correlation) == offsetof(CUpti_ActivityAPI, correlationId));

TEST(CuptiHeader, HasTheNumbersThatWeWroteDown) {
  EXPECT_EQ(kCuptiSuccess, CUPTI_SUCCESS);
  EXPECT_EQ(kCuptiMaxLimitReached, CUPTI_ERROR_MAX_LIMIT_REACHED);
  EXPECT_EQ(kCuptiQueueEmpty, CUPTI_ERROR_QUEUE_EMPTY);
  EXPECT_EQ(kCuptiInsufficientPrivileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
  EXPECT_EQ(kCuptiMultipleSubscribers, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_EQ(kCuptiDriverApi, CUPTI_ACTIVITY_KIND_DRIVER);
  EXPECT_EQ(kCuptiRuntimeApi, CUPTI_ACTIVITY_KIND_RUNTIME);
  EXPECT_EQ(kCuptiConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_EQ(kCuptiExternalCorrelation, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  EXPECT_EQ(kCuptiOurIds, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2);
  EXPECT_EQ(kCuptiFlushForced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  EXPECT_TRUE(IsKnownCupti(CUPTI_API_VERSION));
}

TEST(CuptiHeader, HasTheCallbackIdsThatWeWroteDown) {
  const uint32_t runtime[] = {CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
                              CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
                              CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000,
                              CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_ptsz_v9000,
                              CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernelMultiDevice_v9000,
                              CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
                              CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060};
  const uint32_t driver[] = {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
                             CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
                             CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
                             CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
                             CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice,
                             CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
                             CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz};
  EXPECT_TRUE(std::equal(std::begin(runtime), std::end(runtime), std::begin(kCuptiRuntimeLaunches),
                         std::end(kCuptiRuntimeLaunches)));
  EXPECT_TRUE(std::equal(std::begin(driver), std::end(driver), std::begin(kCuptiDriverLaunches),
                         std::end(kCuptiDriverLaunches)));
#if CUPTI_API_VERSION >= 130000
  EXPECT_EQ(kCuptiRuntimeLaunchesSince13[0], CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000);
  EXPECT_EQ(kCuptiRuntimeLaunchesSince13[1],
            CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000);
#endif
}

#else

TEST(CuptiHeader, HasTheNumbersThatWeWroteDown) { GTEST_SKIP() << "no cupti.h on this machine"; }

#endif

}  // namespace
}  // namespace nanwatch::device
