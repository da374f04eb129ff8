// SPDX-License-Identifier: Apache-2.0
// A parameter or buffer, read while no op hands it over.
#pragma once

#include <cstdint>

#include "shim/observe/python/names/python_names.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

constexpr wire::Target TargetOf(const NamedTensor& named) noexcept {
  return named.kind == NamedTensorKind::kParameter ? wire::Target::kParameter
                                                   : wire::Target::kBuffer;
}

// Keeps the memory alive while it is looked at. The tensor is shown as one row of all its elements,
// because its shape may be changing under us; `tensor` points into this object, which therefore
// stays where it is.
class NamedReading {
 public:
  NamedReading(const PythonNames& names, const NamedTensor& named) noexcept;
  NamedReading(const NamedReading&) = delete;
  NamedReading& operator=(const NamedReading&) = delete;

  // False when it is gone, out of the CPU's reach, has holes, or holds no floating-point values.
  explicit operator bool() const noexcept { return described_ && tensor_.gpu < 0; }
  // It is a GPU's, and otherwise all right.
  bool OnGpu() const noexcept { return described_ && tensor_.gpu >= 0; }
  bool IsBad() const noexcept;
  // Valid in both cases. `impl` is null: nobody holds the tensor itself.
  const PlainTensor& tensor() const noexcept { return tensor_; }
  uint64_t bytes() const noexcept { return tensor_.byte_end - tensor_.byte_begin; }

 private:
  std::optional<NamedTensorView> held_;
  int64_t stride_ = 1;
  PlainTensor tensor_{};
  bool described_ = false;
};

}  // namespace nanwatch
