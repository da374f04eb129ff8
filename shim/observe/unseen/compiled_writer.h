// SPDX-License-Identifier: Apache-2.0
// Bad values that came out of a compiled region (op/compiled_regions.h), whose kernels announce
// nothing.
#pragma once

#include <cstring>

#include "shim/observe/thread/thread_state.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch::compiled_regions {

inline constexpr char kRegion[] = "Torch-Compiled Region";

inline bool IsBackwardNode(const char* node) noexcept {
  return node[0] == 'C' && std::strncmp(node, "CompiledFunctionBackward", 24) == 0;
}

// The writer of what a region has returned, as far as it is known. `name` must outlive it.
UnobservedWriter WriterOf(const char* name, const Layer* layer, bool is_backward) noexcept;
// The region last begun on this thread; empty where that was a backward one.
[[nodiscard]] RegionSeen LastForward(const ThreadState& thread) noexcept;
// Whether a region that ran on this thread has returned something that nobody has read.
[[nodiscard]] bool HasUnread(const ThreadState& thread) noexcept;

}  // namespace nanwatch::compiled_regions

namespace nanwatch {

class KnownBad;

// Threads: any.
class CompiledWrites {
 public:
  // Both outlive it.
  CompiledWrites(KnownBad& known_bad, UnobservedWrites& writes) noexcept
      : known_bad_(known_bad), writes_(writes) {}

  // Records the output of a region, once it is known what went in.
  void Report(ThreadState* thread, UnobservedWriter* writer, const PlainTensor& output) noexcept;
  // A pass begins at this, which is bad and was made by a region: what is known of it, or its
  // record.
  [[nodiscard]] ValueRef OnBadRoot(ThreadState* thread, const PlainTensor& root) noexcept;
  // Python has read this number from a tensor that nobody knows, right after a region whose results
  // nobody has read: its record. Ticket 0: it was not.
  [[nodiscard]] ValueRef OnNumber(ThreadState* thread, double number) noexcept;

 private:
  KnownBad& known_bad_;
  UnobservedWrites& writes_;
};

}  // namespace nanwatch
