// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/op_note.h"

#include <algorithm>

#include "shim/host/zeroed_memory.h"

namespace nanwatch {

bool KnownNotes::Prepare() noexcept {
  known_ = static_cast<Known*>(MapZeroed(kNotes * sizeof(Known)));  // zero is as it begins
  return known_ != nullptr;
}

void KnownNotes::Record(const OpNote& note, State state) noexcept {
  Known& known = known_[note.number % kNotes];
  known.number = note.number;
  known.state = state;
  known.kinds = 0;
  known.producer_count = note.producer_count;
  std::copy_n(note.producers, note.producer_count, known.producers);
}

void KnownNotes::RecordBad(const OpNote& note, const BadEntry& entry, uint8_t kinds) noexcept {
  Record(note, State::kBad);
  Known& known = known_[note.number % kNotes];
  known.kinds = kinds;
  known.site = entry.site;
  known.value = entry.value;
}

}  // namespace nanwatch
