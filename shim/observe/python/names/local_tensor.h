// SPDX-License-Identifier: Apache-2.0
// What a distributed tensor of Python's holds on this rank. torch.distributed.tensor.DTensor has no
// memory of its own: FSDP2's and tensor parallelism's parameters, their gradients and what an
// optimizer keeps for them lie in `_local_tensor`, a slot of the object.
#pragma once

#include <ATen/core/TensorBase.h>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class PythonNames;

// GIL held. The tensor that has the values: `tensor` itself, unless its object is a DTensor. Lives
// as long as `tensor`.
[[nodiscard]] const at::TensorBase& LocalOf(const PythonApi& api, PythonNames& names,
                                            const at::TensorBase& tensor) noexcept;

}  // namespace nanwatch
