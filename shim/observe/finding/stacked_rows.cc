// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/stacked_rows.h"

#include <cstring>

#include "shim/check/scan.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

bool IsBadRow(const void* context, size_t row) {
  TensorView view = *static_cast<const TensorView*>(context);
  const auto offset =
      static_cast<int64_t>(row) * view.strides[0] * static_cast<int64_t>(ElementBytes(view.type));
  view.data = static_cast<const unsigned char*>(view.data) + offset;
  view.numel /= view.sizes[0];
  --view.ndim;
  ++view.sizes;
  ++view.strides;
  return NonFiniteKinds(view) != 0;
}

}  // namespace

LoaderFetch::Rows StackedRowsOf(const Frame& frame, const BadOutput& output) noexcept {
  const TensorView& view = output.tensor.view;
  const bool stacked =
      strcmp(frame.op->name, "aten::stack") == 0 || strcmp(frame.op->name, "aten::cat") == 0;
  if (!stacked || output.tensor.gpu >= 0 || view.ndim == 0) return {};
  return {static_cast<size_t>(view.sizes[0]), IsBadRow, &view};
}

}  // namespace nanwatch
