// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/thread/location.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "shim/observe/python/names/layer_table.h"
#include "shim/observe/python/python_bridge.h"

namespace nanwatch {
namespace {

using wire::Phase;
using wire::ValueRecord;

const Frame* InnermostNode(const ThreadState* thread) {
  for (uint32_t i = std::min(thread->depth, ThreadState::kFramesMax); i != 0; --i) {
    if (thread->frames[i - 1].kind == FrameKind::kNode) return &thread->frames[i - 1];
  }
  return nullptr;
}

// Outside any node's own range the engine runs hooks for the node that comes next, and sums
// gradients for the one it ran last. It knows itself which of them it is at; before a pass's first
// node it is at none.
const Layer* LayerOfEnginesNode(const ThreadState* thread) {
  if (torch::autograd::get_current_node() == nullptr) return thread->node_layer;
  const SequenceEntry* made_by = MadeRunningNode(thread);
  return made_by != nullptr ? made_by->layer : nullptr;
}

}  // namespace

Location LocationOf(const ThreadState* thread) noexcept {
  if (thread->told != nullptr) return thread->told->place;
  Location place{Phase::kOther, CurrentLayer(), "", 0, 0};
  const Frame* node = thread->nodes_open != 0 ? InnermostNode(thread) : nullptr;
  const int task = torch::autograd::get_current_graph_task_id();
  const bool updates_within =
      thread->optimizer_depth != 0 && task != -1 && thread->optimizer_pass_plus_one == task + 1;
  const bool in_pass = !updates_within && (node != nullptr || task != -1);
  if (thread->optimizer_depth != 0) place.flags |= ValueRecord::kInOptimizerRange;
  if (in_pass) {
    place.pass = thread->pass;
    const uint32_t scope_depth = node != nullptr ? node->scope_depth : 0;
    if (node != nullptr) place.node = node->range_name;
    if (ScopeDepth() > scope_depth) {
      place.phase = Phase::kForward;
      place.flags |= ValueRecord::kRecompute;
    } else {
      place.phase = Phase::kBackward;
      place.layer = node != nullptr ? node->layer : LayerOfEnginesNode(thread);
    }
  } else {
    const bool records = c10::GradMode::is_enabled();
    if (ScopeDepth() != 0 || records) {
      place.phase = Phase::kForward;
    } else if (thread->optimizer_depth != 0) {
      place.phase = Phase::kOptimizer;
    }
    if (!records && thread->optimizer_depth == 0) place.flags |= ValueRecord::kWithoutGradients;
  }
  return place;
}

uint32_t UserCallOf(const PythonBridge& python, const ThreadState* thread) noexcept {
  return thread->told != nullptr ? thread->told->call : python.UserCall();
}

SourceLine UserLineOf(const PythonBridge& python, const ThreadState* thread) noexcept {
  SourceLine line;
  line.text[0] = '\0';
  if (thread->told == nullptr) {
    python.UserSourceLine(line.text, sizeof line.text);
  } else if (thread->told->line != nullptr) {
    line = *thread->told->line;
  }
  return line;
}

SequenceEntry* SequenceOf(ThreadState* thread, const Frame& frame) noexcept {
  if (frame.sequence < 0) return nullptr;
  if (thread->told != nullptr && thread->told->own_node != nullptr) return thread->told->own_node;
  ThreadState* owner = thread->told != nullptr ? thread->told->thread : thread;
  SequenceEntry& entry = owner->sequences[frame.sequence & (ThreadState::kSequences - 1)];
  return entry.sequence.load(std::memory_order_relaxed) == frame.sequence + 1 ? &entry : nullptr;
}

const SequenceEntry* MadeRunningNode(const ThreadState* thread) noexcept {
  if (thread->told != nullptr) return thread->told->node_made_by.Get();
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return nullptr;
  return ThreadStates::FindSequence(node->thread_id(), static_cast<int64_t>(node->sequence_nr()));
}

const OpTraits* OutermostOp(const ThreadState& thread, const Frame& frame) noexcept {
  const Frame* outer = &frame;
  for (; outer != thread.frames; --outer) {
    const Frame& caller = outer[-1];
    if (caller.kind != FrameKind::kOp || caller.op->schema == nullptr || !IsOfAten(*caller.op))
      break;
  }
  return outer->op;
}

}  // namespace nanwatch
