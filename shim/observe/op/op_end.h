// SPDX-License-Identifier: Apache-2.0
// An op ends, of whatever kind: what it has left is looked at (output_scan.h), and what follows of
// that is told. The commonest way, an op with one clean result, is written out in callbacks.cc.
#pragma once

#include <ATen/record_function.h>

#include "shim/observe/observer.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/op_table.h"

namespace nanwatch::callbacks {

void EndSlowly(const at::RecordFunction& op);

// Whether an op that writes in place may be an update by hand: after a pass, outside any node of it
// and any optimizer's step.
inline bool IsPlainUpdateDue(const Observer& observer, const ThreadState* thread,
                             const OpTraits& op) {
  return op.in_place && observer.plain_update_due.load(std::memory_order_relaxed) &&
         thread->optimizer_depth == 0 && thread->nodes_open == 0;
}

}  // namespace nanwatch::callbacks
