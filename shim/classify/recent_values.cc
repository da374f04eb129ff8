// SPDX-License-Identifier: Apache-2.0
#include "shim/classify/recent_values.h"

#include <algorithm>
#include <new>

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::SourceKind;

constexpr int kAncestorsMax = 64;

bool Is(const wire::Source& source, SourceKind kind) {
  return source.kind == static_cast<uint8_t>(kind);
}

}  // namespace

ValueRef RecentValues::Add(Kept kept) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ == nullptr) kept_.reset(new (std::nothrow) Kept[kCapacity]());
  kept.index = next_++;
  if (kept_ != nullptr) kept_[kept.index % kCapacity] = kept;
  return ValueRef{kept.record.header.ticket, kept.index};
}

bool RecentValues::Trace(ValueRef ref, Kept* before) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ == nullptr || ref.index == 0) return false;
  Kept& kept = kept_[ref.index % kCapacity];
  if (kept.index != ref.index) return false;
  *before = kept;
  kept.written = true;
  kept.traced = true;
  return true;
}

bool RecentValues::Look(ValueRef ref, Kept* found) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ == nullptr || ref.index == 0 || kept_[ref.index % kCapacity].index != ref.index) {
    return false;
  }
  *found = kept_[ref.index % kCapacity];
  return true;
}

void RecentValues::KeepTensors(uint64_t ticket, const wire::TensorStats* tensors,
                               int count) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (tensors_ == nullptr) tensors_.reset(new (std::nothrow) Tensors[kDescribed]());
  if (tensors_ == nullptr) return;
  Tensors& kept = tensors_[tensors_next_++ % kDescribed];
  kept.ticket = ticket;
  std::copy(tensors, tensors + std::min(count, kTensorsMax), kept.list);
}

bool RecentValues::CopyTensors(uint64_t ticket, wire::TensorStats* tensors, int count) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (tensors_ == nullptr || ticket == 0) return false;
  Tensors* end = tensors_.get() + kDescribed;
  const Tensors* kept = std::find_if(tensors_.get(), end, [ticket](const Tensors& candidate) {
    return candidate.ticket == ticket;
  });
  if (kept == end) return false;
  std::copy(kept->list, kept->list + std::min(count, kTensorsMax), tensors);
  return true;
}

bool RecentValues::CameIn(ValueRef ref) noexcept {
  Kept kept;
  return Look(ref, &kept) && kept.finding_class == FindingClass::kExternal;
}

bool RecentValues::WasGiven(ValueRef ref, bool external_counts) noexcept {
  ValueRef open[kAncestorsMax];
  int count = 0;
  open[count++] = ref;
  for (int i = 0; i < count; ++i) {
    Kept kept;
    if (!Look(open[i], &kept)) return false;
    if (kept.finding_class == FindingClass::kScalar) continue;
    if (kept.finding_class == FindingClass::kExternal && external_counts) continue;
    if (kept.finding_class != FindingClass::kPropagate || kept.record.n_sources == 0) return false;
    for (int s = 0; s < kept.record.n_sources; ++s) {
      const wire::Source& source = kept.record.sources[s];
      if (Is(source, SourceKind::kExternal) && external_counts) continue;
      if (!Is(source, SourceKind::kValue) || count == kAncestorsMax) return false;
      open[count++] = ValueRef{source.value, kept.source_index[s]};
    }
  }
  return true;
}

}  // namespace nanwatch
