#include "shim/observe/place.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "shim/observe/layer_table.h"

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
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return thread->node_layer;
  const SequenceEntry* made_by =
      ThreadStates::FindSequence(node->thread_id(), static_cast<int64_t>(node->sequence_nr()));
  return made_by != nullptr ? made_by->layer : nullptr;
}

}  // namespace

Place PlaceOf(const ThreadState* thread) noexcept {
  Place place{Phase::kOther, CurrentLayer(), "", 0, 0};
  const Frame* node = thread->nodes_open != 0 ? InnermostNode(thread) : nullptr;
  const bool in_pass = node != nullptr || torch::autograd::get_current_graph_task_id() != -1;
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
  } else if (ScopeDepth() != 0 || c10::GradMode::is_enabled()) {
    place.phase = Phase::kForward;
  } else if (thread->optimizer_depth != 0) {
    place.phase = Phase::kOptimizer;
  }
  return place;
}

}  // namespace nanwatch
