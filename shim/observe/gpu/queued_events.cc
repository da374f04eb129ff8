// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/queued_events.h"

#include "shim/observe/gpu/op_note.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

void KeepSeen(const InputSeen& seen, SeenTensor* kept) noexcept {
  kept->seen = seen;
  kept->seen.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(seen.storage.storage));
  kept->looked_at = -1;
  kept->unread = false;
  FillShapeOnly(seen.View(), &kept->stats);
}

void KeepHanded(const CheckedTensor& handed, SeenTensor* kept) noexcept {
  KeepSeen(handed.seen, kept);
  kept->target = handed.target;
  kept->named = handed.named;
  kept->name = handed.name;
}

void DropTensors(OpEvent* event) noexcept {
  if (event->list != nullptr) {
    (void)TensorListPtr::reclaim(event->list);
    return;
  }
  const WeakStorageOps ops = TorchWeakStorageOps();
  for (uint32_t i = 0; i < event->outputs + event->inputs; ++i) {
    ops.drop(event->tensors[i].seen.storage.handle);
  }
}

void DropTensors(QueuedEvent* event) noexcept {
  const WeakStorageOps ops = TorchWeakStorageOps();
  switch (event->kind) {
    case EventKind::kOp:
    case EventKind::kHanded:
      return DropTensors(static_cast<OpEvent*>(event));
    case EventKind::kBatch: {
      auto* batch = static_cast<BatchEvent*>(event);
      for (uint32_t i = 0; i < batch->count; ++i) ops.drop(batch->notes[i].seen.storage.handle);
      for (uint32_t i = 0; i < batch->other_count; ++i) {
        ops.drop(batch->others[i].seen.storage.handle);
      }
      return;
    }
    case EventKind::kView:
      return ops.drop(static_cast<ViewEvent*>(event)->tensor.seen.storage.handle);
    case EventKind::kCollective: {
      auto* collective = static_cast<CollectiveEvent*>(event);
      for (uint32_t i = 0; i < collective->count; ++i) {
        ops.drop(collective->tensors[i].seen.storage.handle);
      }
      return;
    }
    case EventKind::kLeaf:
      if (static_cast<LeafEvent*>(event)->has_gradient) {
        ops.drop(static_cast<LeafEvent*>(event)->gradient.seen.storage.handle);
      }
      return;
    default:
      return;
  }
}

}  // namespace nanwatch
