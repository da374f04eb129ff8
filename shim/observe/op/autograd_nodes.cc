// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/autograd_nodes.h"

#include <torch/csrc/autograd/graph_task.h>

#include <cstring>

#include "shim/observe/op/compiled_regions.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/unseen/compiled_writer.h"

namespace nanwatch {

void AutogradNodes::BeginPassIfNew(ThreadState* thread, bool outermost,
                                   const SequenceEntry* made_by) {
  const int task = torch::autograd::get_current_graph_task_id();
  if (!outermost || task == thread->graph_task) return;
  thread->graph_task = task;
  thread->region.is_backward = false;
  BusyScope busy(thread);
  thread->pass = passes_.OnBegin(thread, task, made_by);
}

void AutogradNodes::Begin(ThreadState* thread, const at::RecordFunction& node) {
  const uint32_t at = thread->depth++;
  const SequenceEntry* made_by = ThreadStates::FindSequence(node.forwardThreadId(), node.seqNr());
  thread->node_layer = made_by != nullptr ? made_by->layer : nullptr;
  thread->node_name = node.name();
  const bool outermost = thread->nodes_open++ == 0;
  BeginPassIfNew(thread, outermost, made_by);
  if (at >= ThreadState::kFramesMax) return;
  Frame& frame = thread->frames[at];
  frame.op = ops_.Range();
  frame.kind = FrameKind::kNode;
  frame.layer = thread->node_layer;
  frame.range_name = thread->node_name;
  frame.scope_depth = ScopeDepth();
  frame.sequence = -1;
  frame.checked_count = 0;
  frame.inputs_count = 0;
  frame.hides = frame.hidden = false;
  frame.cleared_flags = 0;
  if (__builtin_expect(thread->region.is_backward, 0)) {
    BusyScope busy(thread);
    regions_.CheckGradients(thread, node);
  }
  if (__builtin_expect(compiled_regions::IsBackwardNode(thread->node_name), 0)) {
    frame.is_region = true;
    BusyScope busy(thread);
    if (thread->regions_open++ == 0) regions_.BeginBackward(thread, node);
  }
  // Leaves have no place in the order of the forward pass.
  if (node.seqNr() == -1 &&
      std::strcmp(thread->node_name, "torch::autograd::AccumulateGrad") == 0) {
    BusyScope busy(thread);
    passes_.OnLeaf(thread, node);
  }
}

void AutogradNodes::End(ThreadState* thread) {
  if (thread->depth == 0) return;
  --thread->depth;
  if (thread->nodes_open != 0) --thread->nodes_open;
  if (thread->depth < ThreadState::kFramesMax && thread->frames[thread->depth].is_region) {
    --thread->regions_open;
  }
  // An outer node goes on (checkpointing): what follows is its own again.
  for (uint32_t i = thread->depth; thread->nodes_open != 0 && i != 0; --i) {
    if (i > ThreadState::kFramesMax || thread->frames[i - 1].kind != FrameKind::kNode) continue;
    thread->node_layer = thread->frames[i - 1].layer;
    thread->node_name = thread->frames[i - 1].range_name;
    return;
  }
}

}  // namespace nanwatch
