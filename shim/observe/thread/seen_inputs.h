// SPDX-License-Identifier: Apache-2.0
// The inputs that a frame has recorded: what is still true of them when the op has ended.
#pragma once

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

// Lets go of the frame's inputs. To be called exactly once for each frame that has noted any.
void DropInputs(ThreadState* thread, Frame& frame) noexcept;

// Whether any of those that are noted lies on a GPU.
bool HasGpuInput(const ThreadState* thread, const Frame& frame) noexcept;

// After the op: true if the memory of an input noted at its begin is still there, or need not be.
bool IsAlive(const InputSeen& input) noexcept;

// Whether both have bytes of one storage.
inline bool Overlap(const InputSeen& a, const InputSeen& b) noexcept {
  return a.storage.storage == b.storage.storage && a.byte_begin < b.byte_end &&
         b.byte_begin < a.byte_end;
}

// Whether an op that puts values among others (`weight[rows] = new`) was given bad ones to put
// there.
bool PutsBad(const ThreadState* thread, const Frame& frame) noexcept;

// Whether something bad is added in place.
bool AddsBad(const ThreadState* thread, const Frame& frame) noexcept;

// What was bad in this memory is no more: it was written over.
void ForgetBad(BadValues& bad_values, const InputSeen& written) noexcept;

}  // namespace nanwatch
