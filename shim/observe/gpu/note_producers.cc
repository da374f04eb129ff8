// SPDX-License-Identifier: Apache-2.0
// Who made what a noted op has read: its autograd node's edges, as numbers of other notes.
#include "shim/observe/gpu/op_note.h"

namespace nanwatch {
namespace {

// Where the leaf stands among the batch's others; kOthersMax: nowhere, for there is no room, or a
// kernel could not read it.
uint32_t PlaceOfLeaf(BatchEvent& batch, const at::TensorBase& leaf) {
  PlainTensor plain;
  wire::Unchecked reason;
  if (DescribeTensor(leaf, &plain, &reason) != Readable::kYes || plain.gpu < 0 ||
      plain.view.ndim > wire::kShapeDimsMax) {
    return BatchEvent::kOthersMax;
  }
  uint32_t at = 0;
  for (; at < batch.other_count; ++at) {
    const InputSeen& other = batch.others[at].seen;
    if (other.storage.storage == plain.storage && other.byte_begin == plain.byte_begin) return at;
  }
  if (at == BatchEvent::kOthersMax) return at;
  OpNote& other = batch.others.Make(batch.other_count++);
  other.seen = InputSeen{};
  other.seen.Copy(plain);
  return at;
}

}  // namespace

void AddProducers(BatchEvent& batch, const Producers& producers, OpNote* note) noexcept {
  note->has_edges = producers.any;
  note->edges_complete = producers.complete;
  note->unlinked = producers.unlinked;
  for (uint32_t i = 0; i < producers.made_count; ++i) {
    const SequenceEntry* made = producers.made[i].Get();
    const uint64_t number = made != nullptr ? made->note : 0;
    if (number == 0 || note->producer_count == Producers::kMax) {
      note->edges_complete = false;
    } else {
      note->producers[note->producer_count++] =
          number | (producers.made_viewed[i] ? OpNote::kViewBit : 0);
    }
  }
  for (uint32_t i = 0; i < producers.leaf_count; ++i) {
    const bool has_room = note->producer_count < Producers::kMax;
    const uint32_t at =
        has_room ? PlaceOfLeaf(batch, *producers.leaves[i]) : uint32_t{BatchEvent::kOthersMax};
    if (at == BatchEvent::kOthersMax) {
      note->edges_complete = false;
    } else {
      note->producers[note->producer_count++] = OpNote::kLeafBit | at;
    }
  }
}

}  // namespace nanwatch
