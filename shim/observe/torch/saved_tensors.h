// SPDX-License-Identifier: Apache-2.0
// The tensors that an autograd node has saved for its backward: what the ops of the node read
// beside the gradients that it is handed. What autograd alone holds is in none of Python's lists.
//
// The fields of torch's own nodes are listed at build time, from the header that declares them
// (saved_fields.cmake). Nothing is unpacked and no hook of the program's runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace torch::autograd {
struct Node;
}

namespace nanwatch {

// Calls fn(context, tensor) for each, until it returns false. False: not all of them are known,
// because saved-tensor hooks hold one, or the node is of a kind that has not been listed. A node of
// Python's has none of its own: its backward takes them out in Python.
[[nodiscard]] bool ForEachSavedTensor(const torch::autograd::Node& node,
                                      bool (*fn)(void* context, const at::TensorBase& tensor),
                                      void* context) noexcept;

enum class Saved : uint8_t { kNo, kYes, kUnknown };

// Whether the autograd node that this thread runs has saved a tensor of this storage.
[[nodiscard]] Saved IsSavedByRunningNode(const c10::StorageImpl* storage) noexcept;

enum class Computes : uint8_t { kNo, kYes, kUnknown };

// Whether the gradients that a node hands on are results of ops that it runs. What has saved
// tensors computes with them. What has not is taken for a node that may hand on what it was
// handed, as those of views, sums and concatenations do. kUnknown: a Function of the program's own
// or a kind that has not been listed.
[[nodiscard]] Computes ComputesByOps(const torch::autograd::Node& node) noexcept;

// Whether the autograd node that this thread runs is a Function of Python's.
[[nodiscard]] bool RunsPythonNode() noexcept;

}  // namespace nanwatch
