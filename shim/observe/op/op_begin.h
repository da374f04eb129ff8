// SPDX-License-Identifier: Apache-2.0
// An op begins, of whatever kind: a hidden one, one whose inputs are asked for, one that copies
// from a GPU, a compiled region. The commonest way, where nothing of this holds, is written out in
// callbacks.cc.
#pragma once

#include <ATen/record_function.h>

#include <memory>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch::callbacks {

// Both give no context, as the callbacks that end in them.
__attribute__((cold)) std::unique_ptr<at::ObserverContext> BeginSlowly(
    const at::RecordFunction& op);

// Under autocast the op casts its arguments, and calls itself on the results: the computation is
// that one's.
std::unique_ptr<at::ObserverContext> ExposeUnderAutocast(Frame& frame);

}  // namespace nanwatch::callbacks
