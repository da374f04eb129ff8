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

// `sources`: what went in, if that was seen. `count` of `outputs` is one or more. `update_is_given_finite`: everything that the
// open update was given when it began was read, and is finite.
[[nodiscard]] OpEvidence EvidenceOf(const Frame& frame, const Location& place,
                                    const BadOutput* outputs, int count, const Sources& sources,
                                    bool update_is_given_finite) noexcept;

}  // namespace nanwatch
