// SPDX-License-Identifier: Apache-2.0
// Which ops' results went into which, as autograd has it: for ops that are told of after the fact,
// whose inputs nobody asked for. Built where something bad was found, from what was found, and
// forgotten after. It says nothing of inputs that need no gradient.
//
// One thread; the nodes are held by what it was built from, while it is built.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "proto/wire/hash.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

// An autograd node by the thread that made it and its number there.
struct NodeKey {
  uint64_t thread = 0;  // torch's id
  int64_t sequence = -1;
  bool operator==(const NodeKey&) const = default;
};

class ForwardGraph {
 public:
  // All that `tensor` was made of, or the node that is running on this thread. May throw.
  void AddMadeOf(const c10::TensorImpl& tensor);
  void AddMadeOfRunningNode();

  // What went into an op's node, through views.
  struct Inputs {
    bool known = false;  // else nothing below says anything
    bool open = false;   // there are inputs that need no gradient, or that nobody knows
    std::vector<const SequenceEntry*> made_by;
  };
  [[nodiscard]] Inputs InputsOf(NodeKey op) const;

 private:
  struct Hash {
    size_t operator()(const NodeKey& key) const noexcept {
      return (static_cast<uint64_t>(key.sequence) * wire::kGoldenRatio) ^ key.thread;
    }
  };
  struct Edges {
    std::vector<NodeKey> to;  // sequence -1: none
  };
  static constexpr size_t kNodesMax = size_t{1} << 16;

  void AddFrom(const void* node);
  void Collect(const Edges& edges, int views, Inputs* inputs) const;

  std::unordered_map<NodeKey, Edges, Hash> nodes_;
};

}  // namespace nanwatch
