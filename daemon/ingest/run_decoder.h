// SPDX-License-Identifier: Apache-2.0
// What a segment's header and its copy of the user's rules say of the run. Pure functions of private
// copies; text comes out clean, and an enumerator that we do not know becomes 0.
#pragma once

#include "facts.pb.h"
#include "proto/wire/ignore_section.h"
#include "proto/wire/segment.h"

namespace nanwatch {

[[nodiscard]] Run DecodeRun(const wire::SegmentHeader& header);

// The user's rules, or why they cannot be known.
void DecodeIgnore(const wire::IgnoreSection& section, Run& run);

}  // namespace nanwatch
