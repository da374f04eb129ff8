// SPDX-License-Identifier: Apache-2.0
// The autograd node that made a tensor, as it stands. Not TensorBase::grad_fn, which makes the node
// of a view anew that was written to, and throws where that is not allowed.
#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>

namespace nanwatch {

// Null: it is a leaf, or autograd does not know it. Lives as long as the tensor is not written.
inline torch::autograd::Node* GradFnOf(const c10::TensorImpl& tensor) noexcept {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(tensor.autograd_meta());
  return meta != nullptr ? meta->grad_fn_.get() : nullptr;
}

}  // namespace nanwatch
