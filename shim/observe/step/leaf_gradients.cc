// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/leaf_gradients.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {
namespace {

bool IsOfView(const torch::autograd::Node& node) {
  if (node.num_outputs() != 1 || node.sequence_nr() == UINT64_MAX) return false;
  const SequenceEntry* made =
      ThreadStates::FindSequence(node.thread_id(), static_cast<int64_t>(node.sequence_nr()));
  return made != nullptr && made->op != nullptr && made->op->is_view;
}

}  // namespace

LeafSizes LeavesOfRunningNode() {
  using torch::autograd::AccumulateGrad;
  LeafSizes sizes{};
  size_t count = 0;
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return sizes;
  for (const torch::autograd::Edge& edge : node->next_edges()) {
    const torch::autograd::Node* next = edge.function.get();
    if (next != nullptr && IsOfView(*next)) next = next->next_edge(0).function.get();
    // Those alone have the largest number.
    if (next == nullptr || next->sequence_nr() != UINT64_MAX || count == sizes.size()) continue;
    const auto* leaf = dynamic_cast<const AccumulateGrad*>(next);
    if (leaf != nullptr && leaf->variable.defined()) sizes[count++] = leaf->variable.numel();
  }
  return sizes;
}

}  // namespace nanwatch
