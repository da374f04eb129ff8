// SPDX-License-Identifier: Apache-2.0
// What a finding cannot claim, because not all was seen that its class rests on.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BadValues;
class CollectiveResults;
class InputTracking;
class LevelState;
class ProcessSegment;
class PythonNames;
class StepClock;
class UnreadInputs;

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
  bool inputs_known = false;  // those that autograd has kept are all, and they are finite
};

// Threads: any.
class OutOfSight {
 public:
  // All outlive it.
  struct Uses {
    const ProcessSegment& segment;
    const LevelState& level;
    BadValues& bad_values;
    const CollectiveResults& collective_results;
    const PythonNames& names;
    const InputTracking& tracking;
    StepClock& clock;
    UnreadInputs& unread_inputs;
  };
  explicit OutOfSight(const Uses& uses) noexcept : uses_(uses) {}

  // ValueRecord::kUnseenInputs and the like; 0: the class is certain. May take the GIL
  // (unread_inputs.h).
  [[nodiscard]] uint32_t FlagsOf(const Frame& frame, const Claim& claim) noexcept;

 private:
  [[nodiscard]] uint32_t BeforeItCameIn(const Claim& claim) const noexcept;
  [[nodiscard]] uint32_t RanUncheckedJustNow(const Claim& claim) noexcept;
  [[nodiscard]] bool WritesState(const Claim& claim) const noexcept;
  [[nodiscard]] uint32_t OfUnreadInputs(const Frame& frame, const Claim& claim) noexcept;
  [[nodiscard]] uint32_t OfRefusal(const Frame& frame, const Claim& claim) const noexcept;
  [[nodiscard]] uint32_t OfSamples(const Frame& frame, const Claim& claim) const noexcept;
  [[nodiscard]] uint32_t OfUpdated(const Frame& frame, const Claim& claim) const noexcept;
  [[nodiscard]] bool MayHaveBeenMadeHere(const Frame& frame, const Claim& claim) noexcept;
  [[nodiscard]] uint32_t OfInputs(const Frame& frame, const Claim& claim) noexcept;

  const Uses uses_;
};

}  // namespace nanwatch
