// SPDX-License-Identifier: Apache-2.0
// `--on-anomaly stop`: the job ends before an optimizer applies a gradient that is not finite.
//
// The one thing that the observer ever does to a job, and only when it was asked to: where an
// optimizer's step begins with bad gradients, a Python exception is left for the thread that runs
// it, and Python raises it before the next line of the step. An update that a GradScaler skips is
// none, and does not stop. What a GPU says of its gradients is waited for there, so that the host
// is not ahead of it any more; an update that is part of a CUDA graph is not stopped.
#pragma once

#include <cstdint>

#include "shim/classify/recent_values.h"
#include "shim/entry/observer_interface.h"
#include "shim/observe/events/facts.h"

namespace nanwatch {

class ProcessSegment;
class PythonBridge;

class JobStop {
 public:
  // All outlive it.
  JobStop(const NanwatchEntry& entry, ProcessSegment& segment, PythonBridge& python,
          RecentValues& recent) noexcept
      : entry_(entry), segment_(segment), python_(python), recent_(recent) {}

  // Of the gradients of the update that begins some are bad; `step`: how many its optimizer has
  // completed; `bad_root`: what their pass began at, if that was bad, which then is the cause. On
  // the thread that runs the step. True when the exception was left.
  bool StopBeforeUpdate(const Gradients& gradients, uint32_t step, ValueRef bad_root) noexcept;

 private:
  [[nodiscard]] RecentValues::Kept FirstOf(ValueRef value) noexcept;

  const NanwatchEntry& entry_;
  ProcessSegment& segment_;
  PythonBridge& python_;
  RecentValues& recent_;
};

}  // namespace nanwatch
