// SPDX-License-Identifier: Apache-2.0
// Values that enter the program under a name without an op: arguments of a model's call, and
// parameters and buffers.
#pragma once

#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class Observer;

// One of these is bad: `plain` is an argument of a model, or lies under this name in one.
void ReportEntry(Observer& observer, const PlainTensor& plain, wire::Target target,
                 uint32_t name) noexcept;
// Whether all parameters and buffers that modules hold and that can be read are finite. Reads them.
bool AreAllNamedFinite(Observer& observer, ThreadState* thread) noexcept;
// Reads all parameters and buffers that modules hold, after ops went unchecked; what is bad and not
// known yet came in unseen. False where anything was bad, or there was nothing to read.
bool ReadAllNamed(Observer& observer, ThreadState* thread) noexcept;

}  // namespace nanwatch
