// SPDX-License-Identifier: Apache-2.0
// Adapter to LibTorch's tensors: reads what the observer needs from a borrowed tensor, without
// touching a reference count (but of a sparse tensor's values), calling an op, or throwing.
// Everything here may be called with or without the GIL, on any thread, while the caller keeps the
// tensor alive.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>

#include "proto/wire/segment.h"
#include "shim/check/tensor_view.h"

namespace nanwatch {

// Element type of a LibTorch scalar type; kNone for integers, bool and quantised types.
wire::ElementType ElementTypeOf(c10::ScalarType type) noexcept;

// A tensor of dense layout in ordinary memory of the CPU or of a GPU, or the values of a sparse
// one.
struct PlainTensor {
  const c10::TensorImpl* impl;
  const c10::StorageImpl* storage;
  TensorView view;      // borrows sizes and strides from `impl`
  uint64_t byte_begin;  // extent within the storage that the view touches
  uint64_t byte_end;
  int8_t gpu = -1;  // index of the CUDA device that holds the memory; -1: the CPU can read it

  // Every byte of the extent belongs to an element.
  bool IsDense() const noexcept { return byte_end - byte_begin == BytesOf(view); }
};

enum class Readable : uint8_t {
  kYes,
  kNothing,  // no floating-point values in it: not counted anywhere
  kNo,       // could hold bad values, cannot be read: `reason` says why
};

// Fills `plain` when the answer is kYes, and `reason` when it is kNo. Memory of a GPU is described
// all the same (`plain->gpu`), and not to be read here.
Readable DescribeTensor(const at::TensorBase& tensor, PlainTensor* plain,
                        wire::Unchecked* reason) noexcept;
// The same for those that want to read: a GPU's memory is kOtherDevice.
Readable ReadTensor(const at::TensorBase& tensor, PlainTensor* plain,
                    wire::Unchecked* reason) noexcept;

// The commonest case, without a call: an ordinary contiguous tensor on the CPU. False for
// everything else, which is then for ReadTensor to decide.
struct DensePlain {
  const void* data;
  size_t count;
  uint64_t bytes;
  wire::ElementType type;
};
bool ReadDense(const at::TensorBase& tensor, DensePlain* plain) noexcept;

// The same on a GPU: one run of memory, in any order of its dimensions, that a kernel may read.
// False for everything else, which is then for DescribeTensor to decide.
bool ReadDenseOnGpu(const at::TensorBase& tensor, PlainTensor* plain) noexcept;

// The schema's functionality keys that mark a tensor whose storage does not hold its values.
bool IsWrapper(const c10::TensorImpl& impl) noexcept;

// Whether all of it, of any type, is 0 or -0. False as well where it has no elements or more than
// `numel_max`, or cannot be read as it lies.
bool IsAllZero(const at::TensorBase& tensor, int64_t numel_max) noexcept;

}  // namespace nanwatch
