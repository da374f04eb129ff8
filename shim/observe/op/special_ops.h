// SPDX-License-Identifier: Apache-2.0
// What only some ops need once their outputs were checked: those that hand a number to Python, that
// write running statistics, that hand out a collective's results, and a GradScaler's.
#pragma once

#include <ATen/record_function.h>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class CollectiveResults;
class GpuEventQueue;
class RunningStatistics;
class ScalarReads;
class ScalerWatch;

class SpecialOps {
 public:
  // All outlive it.
  SpecialOps(ScalarReads& scalar_reads, ScalerWatch& scaler, GpuEventQueue& gpu,
             RunningStatistics& statistics, CollectiveResults& collectives) noexcept
      : scalar_reads_(scalar_reads),
        scaler_(scaler),
        gpu_(gpu),
        statistics_(statistics),
        collectives_(collectives) {}

  // An op of a family in kNeedsEnd.
  __attribute__((noinline, cold)) void End(ThreadState* thread, Frame& frame,
                                           const at::RecordFunction& op);

 private:
  void EndScalarRead(ThreadState* thread, Frame& frame, const at::RecordFunction& op);

  ScalarReads& scalar_reads_;
  ScalerWatch& scaler_;
  GpuEventQueue& gpu_;
  RunningStatistics& statistics_;
  CollectiveResults& collectives_;
};

}  // namespace nanwatch
