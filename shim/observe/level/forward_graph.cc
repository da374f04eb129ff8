// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/forward_graph.h"

#include <torch/csrc/autograd/function.h>

#include "shim/observe/torch/grad_fn.h"

namespace nanwatch {
namespace {

using torch::autograd::Node;

// Leaves' nodes have the largest number: what they give out are parameters.
constexpr int64_t kNoSequence = -1;
constexpr int64_t kLeaf = -2;
constexpr int kViewsMax = 64;

NodeKey KeyOf(const Node& node) {
  const uint64_t sequence = node.sequence_nr();
  return {node.thread_id(), sequence == UINT64_MAX ? kLeaf : static_cast<int64_t>(sequence)};
}

}  // namespace

void ForwardGraph::AddMadeOf(const c10::TensorImpl& tensor) {
  if (const Node* node = GradFnOf(tensor); node != nullptr) AddFrom(node);
}

void ForwardGraph::AddMadeOfRunningNode() {
  const auto node = torch::autograd::get_current_node();
  if (node != nullptr) AddFrom(node.get());
}

void ForwardGraph::AddFrom(const void* start) {
  std::vector<const Node*> open{static_cast<const Node*>(start)};
  while (!open.empty() && nodes_.size() < kNodesMax) {
    const Node& node = *open.back();
    open.pop_back();
    const auto [at, is_new] = nodes_.try_emplace(KeyOf(node));
    if (!is_new) continue;
    for (const torch::autograd::Edge& edge : node.next_edges()) {
      at->second.to.push_back(edge.is_valid() ? KeyOf(*edge.function) : NodeKey{0, kNoSequence});
      if (edge.is_valid() && at->second.to.back().sequence >= 0)
        open.push_back(edge.function.get());
    }
  }
}

ForwardGraph::Inputs ForwardGraph::InputsOf(NodeKey op) const {
  Inputs inputs;
  const auto found = nodes_.find(op);
  if (op.sequence < 0 || found == nodes_.end()) return inputs;
  inputs.known = true;
  Collect(found->second, 0, &inputs);
  return inputs;
}

void ForwardGraph::Collect(const Edges& edges, int views, Inputs* inputs) const {
  for (const NodeKey& key : edges.to) {
    if (key.sequence == kLeaf) continue;
    const SequenceEntry* made_by = ThreadStates::FindSequence(key.thread, key.sequence);
    const auto node = nodes_.find(key);
    if (made_by == nullptr || made_by->op == nullptr || made_by->op->schema == nullptr ||
        node == nodes_.end() || views == kViewsMax) {
      inputs->open = true;
    } else if (made_by->op->is_view) {
      Collect(node->second, views + 1, inputs);
    } else {
      inputs->made_by.push_back(made_by);
    }
  }
}

}  // namespace nanwatch
