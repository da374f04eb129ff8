// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/picked_values.h"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <memory>

#include "shim/check/scan.h"
#include "shim/observe/finding/held_values.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

constexpr int64_t kOne = 1;

constexpr int kResidentsMax = 64;

// `context`: the kinds that are to be found in it.
bool MayBePickedFrom(const void* context, const BadEntry& entry) {
  const uint8_t kinds = *static_cast<const uint8_t*>(context);
  const bool may_hold = entry.kinds == 0 || (kinds & ~entry.kinds) == 0;
  return entry.resident && entry.site != 0 && may_hold &&
         entry.byte_end - entry.byte_begin <= PickedValues::kBytesMax;
}

// The first finite numbers of a tensor, by their bits.
class Numbers {
 public:
  explicit Numbers(const TensorView& view) noexcept : size_(ElementBytes(view.type)) {
    if (size_ == 0 || size_ > sizeof(uint64_t)) return;
    const auto* data = static_cast<const unsigned char*>(view.data);
    for (int64_t i = 0; i < view.numel && count_ < PickedValues::kNumbersMax; ++i) {
      const unsigned char* at = data + static_cast<uint64_t>(i) * size_;
      const uint64_t bits = BitsAt(at);
      // A zero stands in every memory.
      if (bits != 0 && NonFiniteKinds({at, view.type, 1, &kOne, &kOne, 1}) == 0)
        bits_[count_++] = bits;
    }
    std::sort(bits_, bits_ + count_);
    count_ = static_cast<int>(std::unique(bits_, bits_ + count_) - bits_);
  }

  [[nodiscard]] bool Any() const noexcept { return count_ != 0; }
  [[nodiscard]] bool StandIn(const unsigned char* memory, uint64_t bytes) const noexcept {
    std::bitset<PickedValues::kNumbersMax> seen;
    for (uint64_t at = 0; at + size_ <= bytes; at += size_) {
      const uint64_t bits = BitsAt(memory + at);
      const uint64_t* const found = std::lower_bound(bits_, bits_ + count_, bits);
      if (found == bits_ + count_ || *found != bits) continue;
      seen.set(static_cast<size_t>(found - bits_));
      if (seen.count() == static_cast<size_t>(count_)) return true;
    }
    return false;
  }

 private:
  [[nodiscard]] uint64_t BitsAt(const unsigned char* at) const noexcept {
    uint64_t bits = 0;
    memcpy(&bits, at, size_);
    return bits;
  }

  const uint64_t size_;  // of a number, in bytes
  int count_ = 0;
  uint64_t bits_[PickedValues::kNumbersMax] = {};
};

}  // namespace

bool PickedValues::Find(const BadOutput& output, uint8_t kinds, BadEntry* found) noexcept try {
  const TensorView& view = output.tensor.view;
  if (bad_values_.size() == 0 || output.tensor.gpu >= 0 || view.numel == 0 || !IsRowMajor(view))
    return false;
  const Numbers numbers(view);
  if (!numbers.Any()) return false;
  const auto residents =
      std::make_unique<HeldValues>(bad_values_, kResidentsMax, &MayBePickedFrom, &kinds);
  int matches = 0;
  for (int i = 0; i < residents->count(); ++i) {
    const BadEntry& entry = residents->entry(i);
    const unsigned char* const memory = residents->MemoryOf(i);
    if (memory == nullptr || !numbers.StandIn(memory, entry.byte_end - entry.byte_begin)) continue;
    if (matches == 0 || found->value.ticket != entry.value.ticket) ++matches;
    *found = entry;
  }
  return matches == 1 && residents->all();
} catch (...) {
  return false;
}

}  // namespace nanwatch
