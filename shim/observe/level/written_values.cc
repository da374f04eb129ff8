// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/written_values.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

void WrittenValue::Drop() noexcept {
  if (!IsHeld()) return;
  TorchWeakStorageOps().drop(seen.storage.handle);
  seen.storage.handle = nullptr;
}

WrittenRing* WrittenRing::Map() noexcept {
  void* memory = mmap(nullptr, sizeof(WrittenRing), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* ring = static_cast<WrittenRing*>(memory);
  new (&ring->mutex) std::mutex;  // all else is as it should be when it is zero
  return ring;
}

WrittenValue& WrittenRing::Next(uint64_t now_ns) noexcept {
  WrittenValue& value = At(count);
  if (count >= kKept && value.IsHeld()) {
    const bool alive = !TorchWeakStorageOps().expired(value.seen.storage.handle);
    if (alive && !value.known) lost_iteration = value.iteration + 1;
    value.Drop();
  }
  value.gone_by = 0;
  value.known = value.is_leaf = false;
  value.moment.time_ns = now_ns;
  ++count;
  return value;
}

WrittenValue* WrittenRing::FindNewest(const PlainTensor& tensor, uint32_t among) noexcept {
  const uint64_t oldest = std::max(first(), count - std::min<uint64_t>(count, among));
  for (uint64_t i = count; i > oldest; --i) {
    WrittenValue& value = At(i - 1);
    if (!value.IsHeld() || value.seen.storage.storage != tensor.storage) continue;
    const bool overlaps =
        value.seen.byte_begin < tensor.byte_end && tensor.byte_begin < value.seen.byte_end;
    if (!overlaps) continue;
    const bool covers =
        value.seen.byte_begin <= tensor.byte_begin && value.seen.byte_end >= tensor.byte_end;
    return covers ? &value : nullptr;
  }
  return nullptr;
}

void WrittenRing::EndWindow(uint64_t now_ns) noexcept {
  Sweep(swept_from, now_ns);
  swept_from = window_begin;
  window_begin = count;
}

void WrittenRing::SweepAll(uint64_t now_ns) noexcept { Sweep(0, now_ns); }

void WrittenRing::Sweep(uint64_t from, uint64_t now_ns) noexcept {
  const WeakStorageOps ops = TorchWeakStorageOps();
  for (uint64_t i = std::max(from, first()); i < count; ++i) {
    WrittenValue& value = At(i);
    if (!value.IsHeld() || !ops.expired(value.seen.storage.handle)) continue;
    value.gone_by = now_ns;
    value.Drop();
  }
}

}  // namespace nanwatch
