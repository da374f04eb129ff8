// SPDX-License-Identifier: Apache-2.0
// Level sampled on a GPU: what is recorded of each result of an op until its batch is checked
// (op_batches.h), and what is known of it afterwards.
#pragma once

#include <cstdint>
#include <new>

#include "shim/classify/bad_values.h"
#include "shim/observe/gpu/queued_events.h"
#include "shim/observe/thread/producers.h"

namespace nanwatch {

// One result of one op.
struct OpNote {
  static constexpr uint64_t kLeafBit = uint64_t{1} << 63;
  static constexpr uint64_t kViewBit = uint64_t{1} << 62;  // beside a number: a view of it was read

  InputSeen seen;  // the result; holds its storage weakly
  Moment moment;
  const OpTraits* op = nullptr;
  int64_t sequence = -1;  // of the autograd node that the op made
  uint64_t number = 0;  // of the op, from 1 on, shared by its results; 0: a leaf that one has read
  uint8_t results = 1;  // of the op
  // Numbers of the ops that made what it read; kLeafBit | i: other i of the batch.
  uint64_t producers[Producers::kMax];
  uint8_t producer_count = 0;
  bool has_edges = false;            // autograd knows inputs of the op,
  bool edges_complete = false;       // these are all that it knows,
  bool unlinked = false;             // and something may have been read beside them
  bool needs_gradient = false;       // what reads it has an edge to it
  int8_t entry = -1;                 // its place in the launch; -1: the launch does not read it
  bool in_full = false;              // the launch reads all of it, whatever it finds
  uint8_t kinds_read_later = 0;      // of one that was written over: what its writer left
  bool listed = false;               // of an unread one: a list was made of it
  int8_t written_over_by = -1;       // the note of the same batch whose op wrote there next
  c10::StorageImpl* held = nullptr;  // until the launch
};

// Room for so many, made one by one: most of it is never touched.
template <uint32_t kMax>
class OpNotes {
 public:
  [[nodiscard]] OpNote& operator[](uint64_t i) noexcept {
    return *std::launder(reinterpret_cast<OpNote*>(bytes_) + i);
  }
  [[nodiscard]] const OpNote& operator[](uint64_t i) const noexcept {
    return *std::launder(reinterpret_cast<const OpNote*>(bytes_) + i);
  }
  OpNote& Make(uint64_t i) noexcept { return *new (bytes_ + i * sizeof(OpNote)) OpNote; }
  [[nodiscard]] uint64_t IndexOf(const OpNote& note) const noexcept {
    return static_cast<uint64_t>(&note - reinterpret_cast<const OpNote*>(bytes_));
  }

 private:
  alignas(OpNote) unsigned char bytes_[kMax * sizeof(OpNote)];
};

// A batch in the event queue: published when it has been launched.
struct BatchEvent : QueuedEvent {
  static constexpr uint32_t kNotesMax = 20;
  static constexpr uint32_t kOthersMax = 16;

  uint32_t count;
  uint32_t other_count;
  // Values that live and were not read in full, and that this launch cannot read either.
  bool unread_with_gradient;
  bool unread_without;
  OpNotes<kNotesMax> notes;
  // Read where the batch holds something bad: earlier results that nobody has read in full, and
  // leaves.
  OpNotes<kOthersMax> others;
};

// Tells the note, of an op of this batch, who made what its op read. Leaves go to the batch's
// others.
void AddProducers(BatchEvent& batch, const Producers& producers, OpNote* note) noexcept;

// What is known of the results of ops, by their numbers. For the thread that resolves.
class KnownNotes {
 public:
  // kMask: it holds -Inf, and nothing else that is bad.
  enum class State : uint8_t { kUnread, kClean, kMask, kBad };
  struct Known {
    uint64_t number = 0;
    State state = State::kUnread;
    uint8_t kinds = 0;
    uint8_t producer_count = 0;
    uint32_t site = 0;
    ValueRef value;  // of a bad one
    uint64_t producers[Producers::kMax] = {};
  };

  // False: there is no memory.
  [[nodiscard]] bool Prepare() noexcept;
  void Record(const OpNote& note, State state) noexcept;
  void RecordBad(const OpNote& note, const BadEntry& entry, uint8_t kinds) noexcept;
  // Null: the op was not noted, or too long ago.
  [[nodiscard]] const Known* Find(uint64_t number) const noexcept {
    const Known& known = known_[number % kNotes];
    return number != 0 && known.number == number ? &known : nullptr;
  }

 private:
  static constexpr uint64_t kNotes = 1u << 15;
  Known* known_ = nullptr;  // never freed
};

}  // namespace nanwatch
