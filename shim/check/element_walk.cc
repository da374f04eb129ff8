// SPDX-License-Identifier: Apache-2.0
#include "shim/check/element_walk.h"

namespace nanwatch {
namespace {

int64_t Distance(int64_t stride) noexcept { return stride < 0 ? -stride : stride; }

template <size_t kBytes>
void GatherElements(const char* at, int64_t step_bytes, size_t count, char* into) noexcept {
  for (size_t i = 0; i < count; ++i, at += step_bytes, into += kBytes) {
    __builtin_memcpy(into, at, kBytes);
  }
}

}  // namespace

ElementWalk ElementWalk::OverMemory(const TensorView& view) noexcept {
  ElementWalk walk;
  if (!walk.TakeDims(view)) return walk;
  walk.TurnForward();
  walk.TakeRun(/*overlaps_join=*/true);
  walk.JoinOuter();
  return walk;
}

ElementWalk ElementWalk::OverElements(const TensorView& view) noexcept {
  ElementWalk walk;
  if (!walk.TakeDims(view)) return walk;
  walk.TakeRun(/*overlaps_join=*/false);
  walk.JoinOuter();
  return walk;
}

bool ElementWalk::TakeDims(const TensorView& view) noexcept {
  base_ = static_cast<const char*>(view.data);
  element_bytes_ = ElementBytes(view.type);
  if (base_ == nullptr || element_bytes_ == 0) return false;
  for (int d = 0; d < view.ndim; ++d) {
    if (view.sizes[d] <= 0) return false;
  }
  int64_t row_step = 1;
  for (int d = view.ndim - 1; d >= 0; --d) {
    const Dim dim{view.sizes[d], view.strides[d], row_step};
    row_step *= dim.size;
    if (dim.size == 1) continue;
    if (dim.stride == 0) {
      repeats_ *= dim.size;
      continue;
    }
    if (ndim_ == kDimsMax) return false;
    int at = ndim_++;
    for (; at > 0 && Distance(dims_[at - 1].stride) > Distance(dim.stride); --at) {
      dims_[at] = dims_[at - 1];
    }
    dims_[at] = dim;
  }
  run_count_ = 1;
  return true;
}

void ElementWalk::TurnForward() noexcept {
  for (int d = 0; d < ndim_; ++d) {
    Dim& dim = dims_[d];
    if (dim.stride > 0) continue;
    base_ += (dim.size - 1) * dim.stride * static_cast<int64_t>(element_bytes_);
    dim.stride = -dim.stride;
  }
}

void ElementWalk::TakeRun(bool overlaps_join) noexcept {
  if (ndim_ == 0) return;
  if (dims_[0].stride != 1) {
    run_count_ = static_cast<size_t>(dims_[0].size);
    run_stride_ = dims_[0].stride;
    run_row_step_ = dims_[0].row_step;
    DropFirst();
    return;
  }
  auto run = int64_t{1};
  run_row_step_ = dims_[0].row_step;
  while (ndim_ > 0) {
    const Dim& dim = dims_[0];
    if (overlaps_join) {
      if (dim.stride > run) break;
    } else if (dim.stride != run || dim.row_step != run * run_row_step_) {
      break;
    }
    run += (dim.size - 1) * dim.stride;
    DropFirst();
  }
  run_count_ = static_cast<size_t>(run);
}

void ElementWalk::JoinOuter() noexcept {
  int kept = 0;
  for (int d = 1; d < ndim_; ++d) {
    Dim& inner = dims_[kept];
    const Dim& dim = dims_[d];
    if (dim.stride == inner.stride * inner.size && dim.row_step == inner.row_step * inner.size) {
      inner.size *= dim.size;
    } else {
      dims_[++kept] = dim;
    }
  }
  if (ndim_ > 0) ndim_ = kept + 1;
}

void ElementWalk::DropFirst() noexcept {
  --ndim_;
  for (int d = 0; d < ndim_; ++d) dims_[d] = dims_[d + 1];
}

void ElementWalk::Gather(const char* at, size_t count, char* into) const noexcept {
  const int64_t step_bytes = run_stride_ * static_cast<int64_t>(element_bytes_);
  switch (element_bytes_) {
    case 1:
      return GatherElements<1>(at, step_bytes, count, into);
    case 2:
      return GatherElements<2>(at, step_bytes, count, into);
    case 4:
      return GatherElements<4>(at, step_bytes, count, into);
    case 8:
      return GatherElements<8>(at, step_bytes, count, into);
    default:
      return GatherElements<16>(at, step_bytes, count, into);
  }
}

}  // namespace nanwatch
