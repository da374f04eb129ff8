// SPDX-License-Identifier: Apache-2.0
// The class of a finding (CONTRACT, vocabulary), from what was seen of an op's inputs and outputs.
// Pure; any thread.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch {

struct OpEvidence {
  uint8_t output_kinds = 0;  // kHasNan... over all outputs and written arguments
  bool inputs_seen = false;
  uint8_t input_kinds = 0;  // over all inputs that the op read; only with inputs_seen
  bool scalar_bad = false;  // a non-finite number was among the arguments; only with inputs_seen
  // What is known of the op itself (shim/observe/torch/op_families.h).
  bool writes_constants = false;  // fills, masks
  bool enters = false;            // brings values in from outside
  bool moves = false;             // computes nothing
  bool narrows = false;           // may overflow by a cast
  bool lacks_inf = false;         // the result's type has no Inf: what overflows becomes NaN
  bool nan_proof = false;         // makes no NaN of finite inputs
  bool shrinks = false;           // makes no Inf of finite inputs: leaves nothing larger
  bool bad_number = false;  // an update left no element good: a rate or decay that is not finite
};

// Without seen inputs the class rests on the state before: nothing bad was alive, so every value
// that an op had written was finite. What then comes out bad was made here (produce), asked for
// (scalar), or came from something no op wrote (external).
wire::FindingClass Classify(const OpEvidence& evidence) noexcept;

}  // namespace nanwatch
