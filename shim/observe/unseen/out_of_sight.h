// SPDX-License-Identifier: Apache-2.0
// What a finding cannot claim, because not all was seen that its class rests on.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class Observer;

// A finding that is about to be recorded, as its op ends.
struct Claim {
  const ThreadState* thread;  // whose frame it is
  wire::FindingClass finding_class;
  uint8_t output_kinds;
  wire::Phase phase;
  const BadOutput* outputs;
  int count;
  const Sources* sources;
  bool is_new;                // nothing like it was recorded often before
  bool number_known = false;  // the number that the op was given has been read
  bool traced = false;        // its inputs were looked for after the fact, by whoever found it
};

// ValueRecord::kUnseenInputs and the like; 0: the class is certain. May take the GIL
// (unread_inputs.h).
[[nodiscard]] uint32_t OutOfSight(Observer& observer, const Frame& frame,
                                  const Claim& claim) noexcept;

}  // namespace nanwatch
