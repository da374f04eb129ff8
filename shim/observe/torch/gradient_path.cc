// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/gradient_path.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <new>
#include <unordered_set>
#include <utility>
#include <vector>

#include "shim/observe/torch/saved_tensors.h"

namespace nanwatch {
namespace {

using torch::autograd::Node;

// More nodes in a row that compute nothing are not followed.
constexpr size_t kFollowedMax = 64;

// Who hands gradients to whom, in one pass.
class Givers {
 public:
  explicit Givers(const std::unordered_set<Node*>& nodes) {
    for (const Node* node : nodes) {
      for (const auto& edge : node->next_edges()) {
        if (edge.is_valid()) edges_.emplace_back(edge.function.get(), node);
      }
    }
    std::sort(edges_.begin(), edges_.end());
  }

  template <typename F>
  void ForEach(const Node* taker, F&& fn) const {
    auto edge = std::lower_bound(edges_.begin(), edges_.end(), Edge(taker, nullptr));
    for (; edge != edges_.end() && edge->first == taker; ++edge) fn(*edge->second);
  }

 private:
  using Edge = std::pair<const Node*, const Node*>;
  std::vector<Edge> edges_;
};

bool MayChangeWhatItTakes(const Node& node) {
  auto& changeable = const_cast<Node&>(node);  // older torch has no const accessors
  return !changeable.tensor_pre_hooks().empty() || !node.pre_hooks().empty();
}

bool ComeFromOps(const Node* running, const std::unordered_set<Node*>& nodes) {
  if (MayChangeWhatItTakes(*running)) return false;
  const Givers givers(nodes);
  std::vector<const Node*> takers{running};
  bool all = true;
  for (size_t i = 0; all && i < takers.size(); ++i) {
    givers.ForEach(takers[i], [&](const Node& giver) {
      const Computes computes = ComputesByOps(giver);
      if (computes == Computes::kUnknown || !giver.post_hooks().empty()) all = false;
      if (computes != Computes::kNo || !all) return;
      if (MayChangeWhatItTakes(giver) || takers.size() == kFollowedMax) all = false;
      if (std::find(takers.begin(), takers.end(), &giver) == takers.end()) takers.push_back(&giver);
    });
  }
  return all;
}

}  // namespace

bool GradientsComeFromOps() noexcept {
  if (torch::autograd::get_current_graph_task_id() == -1) return true;
  const auto running = torch::autograd::get_current_node();
  if (running == nullptr) return true;
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr) return false;
  try {
    return ComeFromOps(&*running, *nodes);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace nanwatch
