// SPDX-License-Identifier: Apache-2.0
// The autograd node that made a tensor, as it stands. Not TensorBase::grad_fn, which makes the node
// of a view anew that was written to, and throws where that is not allowed.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <mutex>

namespace nanwatch {

// Null: it is a leaf, or autograd does not know it. Lives as long as the tensor is not written.
inline torch::autograd::Node* GradFnOf(const c10::TensorImpl& tensor) noexcept {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(tensor.autograd_meta());
  return meta != nullptr ? meta->grad_fn_.get() : nullptr;
}

// Whether a weak handle was ever set, which stands when what it held is gone. Nodes are held by
// std::weak_ptr in torch 2.11, by c10::weak_intrusive_ptr in torch 2.15.
template <class Weak>
[[nodiscard]] bool WasEverSet(const Weak& handle) noexcept {
  if constexpr (requires { handle.owner_before(handle); }) {
    const Weak never;
    return never.owner_before(handle) || handle.owner_before(never);
  } else {
    return handle._unsafe_get_target() != nullptr;
  }
}

// Whether a pass may have had a gradient for this leaf: it has one, or a graph was made from it at
// any time. Autograd keeps no graph, but the empty handle of one is another than one never set.
inline bool MayHaveHadGradient(const c10::TensorImpl& leaf) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(leaf.autograd_meta());
  if (meta == nullptr) return false;
  const std::lock_guard<std::mutex> lock(meta->mutex_);
  return meta->grad_.defined() || WasEverSet(meta->grad_accumulator_);
}

// A leaf that may have had a gradient: what a training trains, whoever holds it.
inline bool IsTrained(const at::TensorBase& tensor) {
  return tensor.requires_grad() && tensor.is_leaf() &&
         MayHaveHadGradient(*tensor.unsafeGetTensorImpl());
}

}  // namespace nanwatch
