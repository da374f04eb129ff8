// SPDX-License-Identifier: Apache-2.0
// The end of an op that left something bad, or whose inputs were recorded because something bad is
// alive.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BadValues;
class CleanOutputs;
class GpuEventQueue;
class InputTracking;
class OutputChecker;
class SampledOutputs;
class ScalarReads;
struct OutputScan;

class WatchedOps {
 public:
  // All outlive it.
  WatchedOps(ScalarReads& scalar_reads, CleanOutputs& clean_outputs, BadValues& bad_values,
             InputTracking& input_tracking, GpuEventQueue& gpu, SampledOutputs& sampled,
             OutputChecker& outputs) noexcept
      : scalar_reads_(scalar_reads),
        clean_outputs_(clean_outputs),
        bad_values_(bad_values),
        input_tracking_(input_tracking),
        gpu_(gpu),
        sampled_(sampled),
        outputs_(outputs) {}

  // Its outputs were checked, here or, if `on_gpu`, later on a GPU.
  __attribute__((noinline, cold)) void End(ThreadState* thread, OutputScan& scan,
                                           const std::vector<c10::IValue>& outputs, bool on_gpu);
  // An op whose outputs need no check: what is known of its input is known of a view.
  void EndSkipped(ThreadState* thread, Frame& frame, const Frame* parent,
                  const std::vector<c10::IValue>& outputs);

 private:
  ScalarReads& scalar_reads_;
  CleanOutputs& clean_outputs_;
  BadValues& bad_values_;
  InputTracking& input_tracking_;
  GpuEventQueue& gpu_;
  SampledOutputs& sampled_;
  OutputChecker& outputs_;
};

}  // namespace nanwatch
