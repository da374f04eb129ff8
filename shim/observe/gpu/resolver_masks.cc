// SPDX-License-Identifier: Apache-2.0
// Batches of level sampled in which nothing but -Inf was met.
#include <algorithm>

#include "proto/wire/hash.h"
#include "shim/observe/gpu/batch_answer.h"
#include "shim/observe/gpu/resolver.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

using State = KnownNotes::State;

// -Inf alone is what programs write on purpose, and most often.
bool GpuResolver::IsMasks(const BatchAnswer& found) noexcept {
  for (uint32_t i = 0; i < found.entry_count; ++i) {
    if ((found.result.KindsOf(i) & ~wire::kHasNegInf) != 0) return false;
  }
  return true;
}

// Of each place one is a finding, so that the report names it. The others are none yet: only where
// something comes of them.
void GpuResolver::RecordMasks(BatchAnswer& found) noexcept {
  BatchEvent& batch = *found.batch;
  mask_step_ = parts_.progress.completed();
  for (uint32_t i = 0; i < batch.count;) {
    const std::span<OpNote> notes = NotesOfOp(batch, i);
    bool read = true;
    bool is_mask = false;
    for (OpNote& note : notes) {
      read &= note.in_full;
      if (found.Of(note, /*is_other=*/false).kinds == 0) continue;
      is_mask = true;
      OpNote& kept = masks_[masks_count_++ % kMasksMax];
      if (masks_count_ > kMasksMax) TorchWeakStorageOps().drop(kept.seen.storage.handle);
      kept = note;
      kept.seen.storage =
          HoldWeakly(static_cast<const c10::StorageImpl*>(note.seen.storage.storage));
    }
    notes_.Record(notes.front(), is_mask ? State::kMask : read ? State::kClean : State::kUnread);
    if (is_mask && IsFirstMask(notes.front())) ResolveMask(notes.front().number);
    i += static_cast<uint32_t>(notes.size());
  }
}

bool GpuResolver::IsFirstMask(const OpNote& note) noexcept {
  const uint64_t place = (reinterpret_cast<uintptr_t>(note.op) * wire::kGoldenRatio) ^
                         reinterpret_cast<uintptr_t>(note.moment.place.layer);
  uint64_t* const end = mask_places_ + mask_places_count_;
  if (std::find(mask_places_, end, place) != end) return false;
  if (mask_places_count_ == kMaskPlacesMax) return false;
  *end = place;
  ++mask_places_count_;
  return true;
}

// A mask that something bad was made of becomes a finding, if it is still remembered.
void GpuResolver::ResolveMask(uint64_t number) noexcept {
  number &= ~OpNote::kViewBit;
  const KnownNotes::Known* known = notes_.Find(number);
  if (known == nullptr || known->state != State::kMask) return;
  const uint64_t kept = std::min<uint64_t>(masks_count_, kMasksMax);
  for (uint64_t i = 0; i < kept; ++i) {
    OpNote& mask = masks_[i];
    if (mask.number != number) continue;
    BatchAnswer as_read{nullptr, {}, 0};
    mask.entry = 0;
    as_read.result.states[0] = wire::kHasNegInf | device::kWasReadInFull;
    as_read.result.brief = 1;
    return ResolveNotes(as_read, {&mask, 1}, /*are_others=*/true);
  }
}

// Before the op is resolved that may have read them.
void GpuResolver::ResolveMasksOf(const OpNote& note) noexcept {
  for (uint32_t i = 0; i < note.producer_count; ++i) ResolveMask(note.producers[i]);
  if (note.moment.place.phase != wire::Phase::kBackward) return;
  const SequenceEntry* made = note.moment.node_made_by.Get();
  const KnownNotes::Known* forward = made != nullptr ? notes_.Find(made->note) : nullptr;
  if (forward == nullptr) return;
  const KnownNotes::Known known = *forward;
  ResolveMask(known.number);
  for (uint32_t i = 0; i < known.producer_count; ++i) ResolveMask(known.producers[i]);
}

}  // namespace nanwatch
