// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/thread/producers.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <typeinfo>

#include "shim/observe/torch/grad_fn.h"

namespace nanwatch {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

// Views of views are followed so far.
constexpr int kViewsMax = 4;

// A leaf's node has no place in the order of the forward pass.
bool IsLeaf(const Node& node) {
  return node.sequence_nr() == UINT64_MAX && typeid(node) == typeid(AccumulateGrad);
}

const Node* FirstNode(const Node& node) {
  for (const auto& edge : node.next_edges()) {
    if (edge.is_valid()) return edge.function.get();
  }
  return nullptr;
}

// What stands at the other end of an edge, behind any views. False: nobody knows.
bool Add(const Node* node, Producers* producers) {
  for (int views = 0; node != nullptr && views <= kViewsMax; ++views) {
    if (IsLeaf(*node)) {
      if (producers->leaf_count == Producers::kMax) return false;
      producers->leaves[producers->leaf_count++] =
          &static_cast<const AccumulateGrad*>(node)->variable;
      return true;
    }
    const SequenceEntry* made =
        ThreadStates::FindSequence(node->thread_id(), static_cast<int64_t>(node->sequence_nr()));
    if (made == nullptr || made->op == nullptr) return false;
    if (!made->op->is_view) {
      if (producers->made_count == Producers::kMax) return false;
      producers->made_viewed[producers->made_count] = views != 0;
      producers->made[producers->made_count++] = SequenceRef(made);
      return true;
    }
    node = FirstNode(*node);
  }
  return false;
}

}  // namespace

Producers ProducersOf(const c10::TensorImpl& result) noexcept {
  Producers producers;
  const Node* node = GradFnOf(result);
  if (node == nullptr) return producers;
  producers.any = producers.complete = true;
  for (const auto& edge : node->next_edges()) {
    if (!edge.is_valid()) {
      producers.unlinked = true;
    } else if (!Add(edge.function.get(), &producers)) {
      producers.complete = false;
    }
  }
  return producers;
}

}  // namespace nanwatch
