// SPDX-License-Identifier: Apache-2.0
// What no launch has read yet of what ops have left (op_batches.h).
#include <algorithm>

#include "shim/observe/gpu/op_batches.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

// Holds the storage anew, weakly.
void CopyNote(const OpNote& from, OpNote* to) {
  *to = from;
  to->held = nullptr;
  to->seen.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(from.seen.storage.storage));
}

}  // namespace

template <class Fn>
void OpBatches::DropUnread(Fn&& gone) noexcept {
  const WeakStorageOps ops = TorchWeakStorageOps();
  const auto first = std::stable_partition(unread_.begin(), unread_.end(),
                                           [&gone](const OpNote& note) { return !gone(note); });
  for (auto note = first; note != unread_.end(); ++note) ops.drop(note->seen.storage.handle);
  unread_.erase(first, unread_.end());
  any_unread_.store(!unread_.empty(), std::memory_order_relaxed);
}

void OpBatches::RecordRead(const void* storage, uint64_t byte_begin, uint64_t byte_end) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_read = [&](const OpNote& note) {
    return note.seen.storage.storage == storage && byte_begin <= note.seen.byte_begin &&
           note.seen.byte_end <= byte_end;
  };
  if (std::any_of(unread_.begin(), unread_.end(), is_read)) DropUnread(is_read);
}

// As many unread values as there is room for, the newest first: what this batch has read was most
// likely made just before.
void OpBatches::AddUnread(const Open& open, BatchEvent& batch) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_gone = [](const OpNote& note) { return !IsAlive(note.seen); };
  if (std::any_of(unread_.begin(), unread_.end(), is_gone)) DropUnread(is_gone);
  for (auto unread = unread_.rbegin(); unread != unread_.rend(); ++unread) {
    if (unread->seen.gpu == open.gpu && batch.other_count < BatchEvent::kOthersMax) {
      CopyNote(*unread, &batch.others.Make(batch.other_count++));
    } else {
      (unread->needs_gradient ? batch.unread_with_gradient : batch.unread_without) = true;
    }
  }
  batch.unread_with_gradient |= unread_lost_with_gradient_;
  batch.unread_without |= unread_lost_without_;
}

// What the launch did not read and what still lives may be read by ops of later batches.
void OpBatches::KeepUnread(const BatchEvent& batch) noexcept {
  for (uint32_t i = 0; i < batch.count; ++i) {
    const OpNote& note = batch.notes[i];
    if (note.in_full || note.written_over_by >= 0 || !IsAlive(note.seen)) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto lose = [this](const OpNote& lost) {
      (lost.needs_gradient ? unread_lost_with_gradient_ : unread_lost_without_) = true;
    };
    if (unread_.size() == kUnreadMax) {
      lose(unread_.front());
      DropUnread([oldest = &unread_.front()](const OpNote& each) { return &each == oldest; });
    }
    try {
      CopyNote(note, &unread_.emplace_back());
      any_unread_.store(true, std::memory_order_relaxed);
    } catch (...) {
      lose(note);
    }
  }
}

}  // namespace nanwatch
