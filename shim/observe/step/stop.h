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

#include "shim/classify/bad_values.h"

namespace nanwatch {

class Observer;
struct NamedTensor;

// Of the `bad` of `count` gradients the first belongs to `named` (null: not known) and holds
// `value` (ticket 0: not known). On the thread that runs the step.
// True when the exception was left.
bool StopBeforeUpdate(Observer& observer, uint32_t bad, uint32_t count, const NamedTensor* named,
                      ValueRef value) noexcept;

}  // namespace nanwatch
