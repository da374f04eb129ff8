// SPDX-License-Identifier: Apache-2.0
// A finding in the making.
#pragma once

#include <cstdint>

#include "shim/classify/finding_class.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/finding/kept_inputs.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

// One op's bad outputs, and what is found out about them.
struct Finding {
  Finding(ThreadState* of_thread, Frame& of_frame, const BadOutput* bad, int bad_count,
          Emitter& to) noexcept
      : thread(of_thread),
        frame(of_frame),
        outputs(bad),
        count(bad_count),
        emitter(to),
        place(LocationOf(of_thread)),
        traced(of_thread->traced) {}

  ThreadState* thread;
  Frame& frame;
  const BadOutput* outputs;
  int count;
  Emitter& emitter;
  Location place;
  const Traced* traced;  // what was found out about its inputs after the fact; null: nothing

  OwnWrites own{};
  Sources sources;
  KeptInputs kept;
  bool of_numbers = false;      // a tensor built of Python's numbers,
  bool number_guessed = false;  // or an op given one: the last NaN that Python has read
  OpEvidence evidence;
  wire::FindingClass finding_class{};
  const OpTraits* whole_op = nullptr;  // the one that is named, where it is not the frame's
  Written written;
  SiteKey key;
  uint32_t site = 0;
  uint32_t seen = 0;  // at this site
  bool is_new_site = false;
  Draft draft;
  ValueRef value;

  [[nodiscard]] bool just_made() const { return traced == nullptr && thread->told == nullptr; }
};

}  // namespace nanwatch
