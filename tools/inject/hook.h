// SPDX-License-Identifier: Apache-2.0
// A hook on calls of a process: the first thread of it that comes to one loads the library, and
// goes on to what it called. No thread is stopped for it and no instruction is replaced; what
// changes is a pointer for each slot, in one aligned store, and space that nobody used.
//
// Only while the tool lives and permits it: when the tool is killed, the next thread that comes
// finds it gone, and the hook only passes on from then.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/inject/job_images.h"
#include "tools/inject/payload_layout.h"
#include "tools/inject/room.h"
#include "tools/inject/target_memory.h"
#include "tools/late_call.h"

namespace nanwatch {

// The block, as payload_layout.h lays it out.
struct PayloadBlock {
  uint32_t state = NANWATCH_STATE_ARMED;
  uint32_t permission = 1;
  int32_t pid = 0;
  int32_t tool = 0;
  uint64_t dlopen = 0;
  uint64_t dlsym = 0;
  uint64_t dlerror = 0;
  uint64_t errno_location = 0;
  uint64_t library = 0;
  uint64_t symbol = 0;
  uint64_t level = 0;
  uint64_t directory = 0;
  uint64_t answers = 0;
  int32_t answer = -1;
  uint32_t lent = 0;
  uint64_t add_pending = 0;
  uint64_t pending = 0;
  uint32_t xsave_bytes = 0;
  uint32_t mxcsr = 0x1f80;  // as a program starts
  std::array<char, NANWATCH_BLOCK_ERROR_BYTES> error{};
  uint32_t texts_bytes = 0;
  uint32_t reserved = 0;
};

class Hook {
 public:
  // Puts everything but the hook itself into the process, in the same space as an earlier tool, if
  // there was one: a thread that comes late to what that tool left is then one of ours. Nothing if
  // there is no space, it cannot be written, or the library is being loaded for somebody else.
  // `memory` must outlive it.
  [[nodiscard]] static std::optional<Hook> Place(TargetMemory& memory, Room& room, int pid,
                                                 const JobFunctions& functions,
                                                 const LateCall& call, uint32_t xsave_bytes);

  // From here on a thread may come. False when the process has ended.
  [[nodiscard]] bool Set();
  // No thread that comes later loads; a call that has begun is not stopped. The slots are as they
  // were, those that somebody else has changed meanwhile stay.
  void Remove();

  // Nothing when the process has ended, or runs another program.
  [[nodiscard]] std::optional<PayloadBlock> Read() const;
  // After it was abandoned by a fork, which shares nothing but may not know (vfork).
  void Rearm();

  // For a borrowed thread: its entry, 0 when there is none.
  [[nodiscard]] uint64_t borrowed_entry() const { return borrowed_entry_; }
  // Where it goes on; false when it cannot be written.
  [[nodiscard]] bool PrepareLoan(uint64_t resume);

 private:
  struct Hooked {
    CallSlot slot;
    uint64_t entry = 0;
  };
  explicit Hook(TargetMemory& memory) : memory_(&memory) {}
  // The address of a payload that goes on to this function, an earlier tool's or a new one.
  [[nodiscard]] std::optional<uint64_t> FindPayload(const Room& room, uint64_t function);
  [[nodiscard]] std::optional<uint64_t> PlacePayload(Room& room, uint64_t function);
  [[nodiscard]] bool PlaceBlock(Room& room, PayloadBlock content, const LateCall& call);

  TargetMemory* memory_;
  uint64_t block_ = 0;
  uint64_t payload_ = 0;  // the copy whose further entries are used
  uint64_t borrowed_entry_ = 0;
  std::vector<Hooked> hooked_;
};

}  // namespace nanwatch
