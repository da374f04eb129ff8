// SPDX-License-Identifier: Apache-2.0
// Cuts a tensor of any layout into runs of elements that lie side by side in memory.
//
//   sizes (2, 3, 4), strides (24, 4, 1) of a sliced tensor        one run per row of the storage
//     dimension 2: 4 elements side by side   \  strides 4 = 4 * 1: one run of 12
//     dimension 1: 3 times, 4 apart          /
//     dimension 0: 2 times, 24 apart         -> 2 runs
//
// Dimensions are taken in the order of their strides, not of their places, so that channels-last
// and transposed tensors are walked as they lie. Nothing is allocated; values live on the caller's
// stack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/check/tensor_view.h"

namespace nanwatch {

class ElementWalk {
 public:
  // Every address once: dimensions of stride 0 count as one, windows that overlap are joined, and
  // the order of the elements is lost.
  [[nodiscard]] static ElementWalk OverMemory(const TensorView& view) noexcept;

  // Every element with its row-major index; only dimensions of stride 0 are taken once (each
  // element then stands for `repeats` of them, the first of which has the index given).
  [[nodiscard]] static ElementWalk OverElements(const TensorView& view) noexcept;

  // How many elements of the tensor each one visited stands for.
  [[nodiscard]] int64_t repeats() const noexcept { return repeats_; }

  // True if the whole walk is one run; `data` and `count` are then that run.
  [[nodiscard]] bool IsOneRun() const noexcept { return ndim_ == 0 && run_stride_ == 1; }
  [[nodiscard]] const char* data() const noexcept { return base_; }
  [[nodiscard]] size_t count() const noexcept { return run_count_; }

  // Calls `visit(data, count, row, row_step)` for each run until it returns true: `count` elements
  // side by side from `data`, of row-major indices row, row + row_step, ... Elements that do not
  // lie side by side are first collected in a small buffer.
  template <class Visit>
  void ForEachRun(Visit visit) const noexcept;

 private:
  // A tensor whose elements can be counted in 64 bits has fewer dimensions of size 2 and more than
  // this.
  static constexpr int kDimsMax = 64;
  static constexpr size_t kGatherCount = 128;

  // A dimension left after those of size 1 and stride 0 were dropped.
  struct Dim {
    int64_t size;
    int64_t stride;    // in elements
    int64_t row_step;  // in row-major index
  };

  // Takes the dimensions that matter, by rising distance in memory. False if there is no element.
  [[nodiscard]] bool TakeDims(const TensorView& view) noexcept;
  void TurnForward() noexcept;
  // The innermost dimensions that lie side by side become the run.
  void TakeRun(bool overlaps_join) noexcept;
  void JoinOuter() noexcept;
  void DropFirst() noexcept;

  template <class Visit>
  bool VisitRun(const char* at, int64_t row, Visit visit) const noexcept;
  void Gather(const char* at, size_t count, char* into) const noexcept;

  const char* base_ = nullptr;
  size_t element_bytes_ = 0;
  size_t run_count_ = 0;    // elements of a run
  int64_t run_stride_ = 1;  // between them, in elements
  int64_t run_row_step_ = 1;
  int64_t repeats_ = 1;
  int ndim_ = 0;  // dimensions around the run, innermost first
  Dim dims_[kDimsMax];
};

template <class Visit>
void ElementWalk::ForEachRun(Visit visit) const noexcept {
  if (run_count_ == 0) return;
  int64_t index[kDimsMax] = {};
  const char* at = base_;
  int64_t row = 0;
  for (;;) {
    if (VisitRun(at, row, visit)) return;
    int d = 0;
    for (; d < ndim_; ++d) {
      const Dim& dim = dims_[d];
      const int64_t bytes = dim.stride * static_cast<int64_t>(element_bytes_);
      if (++index[d] < dim.size) {
        at += bytes;
        row += dim.row_step;
        break;
      }
      index[d] = 0;
      at -= bytes * (dim.size - 1);
      row -= dim.row_step * (dim.size - 1);
    }
    if (d == ndim_) return;
  }
}

template <class Visit>
bool ElementWalk::VisitRun(const char* at, int64_t row, Visit visit) const noexcept {
  if (run_stride_ == 1) return visit(at, run_count_, row, run_row_step_);
  constexpr size_t kElementBytesMax = 16;
  alignas(64) char buffer[kGatherCount * kElementBytesMax];
  for (size_t done = 0; done < run_count_; done += kGatherCount) {
    const size_t count = run_count_ - done < kGatherCount ? run_count_ - done : kGatherCount;
    const auto from = static_cast<int64_t>(done);
    Gather(at + from * run_stride_ * static_cast<int64_t>(element_bytes_), count, buffer);
    if (visit(buffer, count, row + from * run_row_step_, run_row_step_)) return true;
  }
  return false;
}

}  // namespace nanwatch
