// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/ruined_parameters.h"

#include <algorithm>
#include <exception>

#include "shim/check/scan.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

// It was written over since, as by the best weights of a training.
bool IsFiniteNow(const WeakStorage& weak, uint64_t byte_begin, uint64_t byte_end,
                 wire::ElementType type) {
  const auto storage = TakeStorage(static_cast<const c10::StorageImpl*>(weak.storage));
  if (!storage || !storage->device().is_cpu() || byte_end > storage->nbytes()) return false;
  const auto* base = static_cast<const char*>(DataOf(*storage));
  return base != nullptr &&
         !HasNonFinite(type, base + byte_begin, (byte_end - byte_begin) / ElementBytes(type));
}

}  // namespace

RuinedParameters::~RuinedParameters() {
  for (const BadEntry& ruined : ruined_) TorchWeakStorageOps().drop(ruined.storage.handle);
}

void RuinedParameters::Take(void* self, const BadEntry& entry) {
  auto& all = *static_cast<RuinedParameters*>(self);
  if (entry.site == 0) return;
  const Left left{entry.value, entry.site};
  if (left.value.ticket > all.newest_.value.ticket) all.newest_ = left;
  if (all.ruined_.size() < kMax) all.ruined_.resize(all.ruined_.size() + 1);
  BadEntry& ruined = all.ruined_[all.next_];
  if (ruined.storage.handle != nullptr) TorchWeakStorageOps().drop(ruined.storage.handle);
  ruined = entry;
  ruined.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(entry.storage.storage));
  all.next_ = (all.next_ + 1) % kMax;
  all.added_ = std::min<size_t>(all.added_ + 1, kMax);
}

void RuinedParameters::Add(BadValues& bad_values) noexcept try {
  const std::lock_guard<std::mutex> lock(mutex_);
  ruined_.reserve(kMax);
  added_ = 0;
  bad_values.ForEach(&RuinedParameters::Take, this);
} catch (const std::exception&) {
  // No memory: what they leave is not known then.
}

void RuinedParameters::Restore(BadValues& bad_values) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t n = added_; n-- > 0;) {
    if (TorchWeakStorageOps().expired(At(n).storage.handle)) continue;
    BadEntry entry = At(n);
    entry.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(entry.storage.storage));
    entry.resident = true;  // no reason to ask all ops for their inputs
    (void)bad_values.Add(entry);
  }
}

std::optional<RuinedParameters::Left> RuinedParameters::Newest() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return newest_.value.ticket != 0 ? std::optional(newest_) : std::nullopt;
}

std::optional<RuinedParameters::Left> RuinedParameters::FindAlike(
    const PlainTensor& tensor) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const TensorView& view = tensor.view;
  // A single number may be anything.
  if (view.ndim == 0 || tensor.gpu >= 0) return std::nullopt;
  const uint64_t bytes = static_cast<uint64_t>(view.numel) * ElementBytes(view.type);
  BadEntry now;
  for (size_t n = 0; n < ruined_.size(); ++n) {
    const BadEntry& ruined = At(n);
    if (ruined.target != wire::Target::kParameter || !ruined.dense ||
        ruined.byte_end - ruined.byte_begin != bytes) {
      continue;
    }
    if (now.elements == 0) CountBad(view, &now);
    // A batch may be as large. Copies and averages have no fewer bad elements.
    const auto all = static_cast<uint64_t>(view.numel);
    if (now.elements < (ruined.elements != 0 ? std::min(ruined.elements, all) : all)) continue;
    if (IsFiniteNow(ruined.storage, ruined.byte_begin, ruined.byte_end, view.type)) continue;
    return Left{ruined.value, ruined.site};
  }
  return std::nullopt;
}

}  // namespace nanwatch
