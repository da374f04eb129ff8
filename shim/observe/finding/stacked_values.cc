// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/stacked_values.h"

#include <bitset>
#include <cstring>
#include <memory>

#include "shim/check/scan.h"
#include "shim/observe/finding/held_values.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

struct Sizes {
  uint64_t row_bytes;
  uint64_t bytes;  // of the result
};

bool MayBePart(const void* context, const BadEntry& entry) {
  const auto& sizes = *static_cast<const Sizes*>(context);
  const uint64_t bytes = entry.byte_end - entry.byte_begin;
  return entry.site != 0 && entry.dense && bytes != 0 && bytes % sizes.row_bytes == 0 &&
         bytes <= sizes.bytes;
}

class Rows {
 public:
  Rows(const TensorView& view, Sources* sources) noexcept
      : view_(view),
        count_(static_cast<size_t>(view.sizes[0])),
        bytes_(BytesOf(view) / count_),
        sources_(sources) {
    for (size_t row = 0; row < count_; ++row) bad_[row] = NonFiniteKinds(Part(row, 1)) != 0;
  }

  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool AllExplained() const noexcept { return (bad_ & ~explained_).none(); }

  // `memory`: the entry's first byte.
  void Compare(const BadEntry& entry, const unsigned char* memory) noexcept {
    const uint64_t bytes = entry.byte_end - entry.byte_begin;
    const size_t rows = bytes / bytes_;
    for (size_t row = 0; row + rows <= count_; ++row) {
      if (bad_[row] && memcmp(At(row), memory, bytes) == 0) Explain(row, rows, entry);
    }
  }

 private:
  [[nodiscard]] const unsigned char* At(size_t row) const noexcept {
    return static_cast<const unsigned char*>(view_.data) + row * bytes_;
  }
  [[nodiscard]] TensorView Part(size_t row, size_t count) noexcept {
    numel_ = static_cast<int64_t>(count * bytes_ / ElementBytes(view_.type));
    return {At(row), view_.type, 1, &numel_, &kOne, numel_};
  }

  void Explain(size_t row, size_t rows, const BadEntry& entry) noexcept {
    for (size_t i = row; i < row + rows; ++i) explained_[i] = true;
    const TensorView part = Part(row, rows);
    wire::Source source = SourceFrom(entry);
    source.kinds = NonFiniteKinds(part);
    source.input = 0;
    sources_->Add(source, entry.value.index);
    sources_->assumed |= IsAllBad(part);
  }

  static constexpr int64_t kOne = 1;
  const TensorView& view_;
  const size_t count_;
  const uint64_t bytes_;  // of a row
  Sources* const sources_;
  int64_t numel_ = 0;  // of the part that was looked at last
  std::bitset<StackedValues::kRowsMax> bad_, explained_;
};

}  // namespace

void StackedValues::AddSources(const Frame& frame, const BadOutput& output,
                               Sources* sources) noexcept try {
  const TensorView& view = output.tensor.view;
  if (bad_values_.size() == 0 || (frame.op->families & kStacks) == 0 || output.tensor.gpu >= 0)
    return;
  if (view.ndim == 0 || view.numel == 0 || !IsRowMajor(view) || view.sizes[0] > kRowsMax ||
      BytesOf(view) > kBytesMax) {
    return;
  }
  Rows rows(view, sources);
  const Sizes sizes{rows.bytes(), BytesOf(view)};
  const auto candidates =
      std::make_unique<HeldValues>(bad_values_, HeldValues::kMax, &MayBePart, &sizes);
  for (int i = 0; i < candidates->count(); ++i) {
    const unsigned char* const memory = candidates->MemoryOf(i);
    if (memory != nullptr) rows.Compare(candidates->entry(i), memory);
  }
  if (sources->count != 0) sources->assumed |= !rows.AllExplained() || !candidates->all();
} catch (...) {
}

}  // namespace nanwatch
