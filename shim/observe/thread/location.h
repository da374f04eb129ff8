// SPDX-License-Identifier: Apache-2.0
// Where an op ran: everything that a site's key and a record's head need beside the op itself.
#pragma once

#include <cstdint>

#include "shim/emit/emitter.h"
#include "shim/observe/python/names/layer_table.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class PythonBridge;

struct Location {
  wire::Phase phase;
  const Layer* layer;
  const char* node;
  uint32_t flags;  // kRecompute, kInOptimizerRange, kWithoutGradients
  uint64_t pass;
};

// Everything that would be asked of the thread that called an op, kept for when a GPU has answered.
struct Moment {
  Location place{};
  ThreadState* thread = nullptr;
  uint64_t time_ns = 0;
  uint64_t first_event = 0;           // Frame's
  const SourceLine* line = nullptr;   // null: none is known. Never freed
  uint32_t call = 0;                  // PythonBridge::UserCall
  uint32_t node = 0;                  // name id of the autograd node; `place.node` is gone with it
  SequenceRef node_made_by;           // of the autograd node that ran
  SequenceEntry* own_node = nullptr;  // of an op in a graph: in place of its thread's entry
  bool in_optimizer = false;
  bool in_region = false;
};

// PythonBridge's, or what the moment knows that is told on this thread.
uint32_t UserCallOf(const PythonBridge& python, const ThreadState* thread) noexcept;
SourceLine UserLineOf(const PythonBridge& python, const ThreadState* thread) noexcept;

// The op may make an autograd node: what its sequence number stands for, noted for every op.
[[gnu::always_inline]] inline void RememberSequence(ThreadState* thread,
                                                    const Frame& frame) noexcept {
  SequenceEntry& entry = thread->sequences[frame.sequence & (ThreadState::kSequences - 1)];
  entry.sequence.store(frame.sequence + 1, std::memory_order_relaxed);
  entry.layer = __builtin_expect(thread->nodes_open != 0, 0) && ScopeDepth() == 0
                    ? thread->node_layer
                    : CurrentLayer();
  entry.op = frame.op;
  entry.value.ticket = 0;
}

// What the op's autograd node, if it made one, is known by; null: none, or written over since.
SequenceEntry* SequenceOf(ThreadState* thread, const Frame& frame) noexcept;
// The same of the node that is running, and of the op that made it.
const SequenceEntry* MadeRunningNode(const ThreadState* thread) noexcept;

// The op of torch's that was called from outside, of which the frame's op is a part; the frame's own
// where it was called itself.
const OpTraits* OutermostOp(const ThreadState& thread, const Frame& frame) noexcept;

// Of the op that ends on the calling thread. CONTRACT, vocabulary `phase`: the innermost wins.
Location LocationOf(const ThreadState* thread) noexcept;

}  // namespace nanwatch
