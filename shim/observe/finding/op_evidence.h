// SPDX-License-Identifier: Apache-2.0
// What is known of an op that left something bad, as the rules of classify/ ask for it.
#pragma once

#include "shim/classify/finding_class.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

// A composite of torch computes nothing but by the ops it calls. With none of them bad, it returned
// what it was given (dropout in evaluation).
[[nodiscard]] bool PassesOn(const Frame& frame) noexcept;

// Of the update that an op belongs to.
struct UpdateEvidence {
  bool given_finite = false;  // all that an optimizer's step was given was read, and is finite
  bool by_hand = false;       // of a leaf that the newest backward pass has reached
};

// `sources`: what went in, if that was seen. `count` of `outputs` is one or more.
[[nodiscard]] OpEvidence EvidenceOf(const Frame& frame, const Location& place,
                                    const BadOutput* outputs, int count, const Sources& sources,
                                    const UpdateEvidence& update) noexcept;

}  // namespace nanwatch
