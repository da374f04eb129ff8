// SPDX-License-Identifier: Apache-2.0
// The callbacks that libtorch calls for every op, autograd node and range. They are plain functions
// without state of their own; what they know stands in the thread's state and the observer. None
// lets anything out.
#pragma once

#include <ATen/record_function.h>

#include <memory>

namespace nanwatch::callbacks {

// A: ops, autograd nodes and ranges.
std::unique_ptr<at::ObserverContext> Start(const at::RecordFunction& function);
void End(const at::RecordFunction& function, at::ObserverContext* context);
// Ranges alone, for a level that looks at no op.
std::unique_ptr<at::ObserverContext> RangeStart(const at::RecordFunction& range);
void RangeEnd(const at::RecordFunction& range, at::ObserverContext* context);
// B: exists so that libtorch boxes arguments.
std::unique_ptr<at::ObserverContext> InputStart(const at::RecordFunction& op);

}  // namespace nanwatch::callbacks
