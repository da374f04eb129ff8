// SPDX-License-Identifier: Apache-2.0
// What no launch has read yet of what ops have left (op_batches.h).
#include <algorithm>
#include <utility>
#include <vector>

#include "shim/device/batch_launch.h"
#include "shim/observe/gpu/op_batches.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

// Holds the storage anew, weakly.
void CopyNote(const OpNote& from, OpNote* to) {
  *to = from;
  to->held = nullptr;
  to->entry = -1;
  to->listed = false;
  to->seen.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(from.seen.storage.storage));
}

}  // namespace

template <class Fn>
void OpBatches::DropUnread(Fn&& gone) noexcept {
  std::erase_if(unread_, [&gone](const OpNote& note) {
    if (!gone(note)) return false;
    TorchWeakStorageOps().drop(note.seen.storage.handle);
    return true;
  });
  any_unread_.store(!unread_.empty(), std::memory_order_relaxed);
}

void OpBatches::RecordRead(std::span<const ReadRange> ranges, uint64_t ops_before) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  DropUnread([&](const OpNote& note) {
    if (!IsAlive(note.seen)) return true;
    return note.number <= ops_before &&
           std::any_of(ranges.begin(), ranges.end(), [&note](const ReadRange& read) {
             return note.seen.storage.storage == read.storage &&
                    read.byte_begin <= note.seen.byte_begin && note.seen.byte_end <= read.byte_end;
           });
  });
}

// What is large is read in part again and again, and would be unread again at once.
TensorListPtr OpBatches::TakeUnread(
    int8_t gpu, std::vector<c10::intrusive_ptr<c10::StorageImpl>>* held) noexcept try {
  const std::lock_guard<std::mutex> lock(mutex_);
  TensorListPtr list;
  for (OpNote& note : unread_) {
    const PlainTensor plain = note.seen.Plain();
    if (note.listed || plain.gpu != gpu || BytesOf(plain.view) > device::kReadInFullBytes) continue;
    c10::intrusive_ptr<c10::StorageImpl> storage = TakeStorage(plain.storage);
    if (!storage || !IsAlive(note.seen)) continue;
    if (!list) list = c10::make_intrusive<TensorList>(gpu, unread_.size());
    if (!list->HasRoomFor(gpu)) break;
    held->push_back(std::move(storage));
    list->Add(plain, wire::Target::kNone, nullptr);
    note.listed = true;
  }
  return list;
} catch (...) {
  return {};
}

// As many unread values as there is room for, the newest first: what this batch has read was most
// likely made just before.
void OpBatches::AddUnread(const Open& open, BatchEvent& batch) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  DropUnread([](const OpNote& note) { return !IsAlive(note.seen); });
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
    KeepOneUnread(note);
  }
}

// In the place of an older one of the same memory.
void OpBatches::KeepOneUnread(const OpNote& note) noexcept {
  const InputSeen& seen = note.seen;
  DropUnread([&seen](const OpNote& older) {
    return older.seen.storage.storage == seen.storage.storage &&
           older.seen.byte_begin == seen.byte_begin && older.seen.byte_end == seen.byte_end;
  });
  if (unread_.size() == kUnreadMax) {
    LoseUnread(unread_.front());
    TorchWeakStorageOps().drop(unread_.front().seen.storage.handle);
    unread_.erase(unread_.begin());
  }
  try {
    CopyNote(note, &unread_.emplace_back());
    any_unread_.store(true, std::memory_order_relaxed);
  } catch (...) {
    LoseUnread(note);
  }
}

void OpBatches::LoseUnread(const OpNote& note) noexcept {
  (note.needs_gradient ? unread_lost_with_gradient_ : unread_lost_without_) = true;
}

}  // namespace nanwatch
