// SPDX-License-Identifier: Apache-2.0
// What a pattern may ask of an incident, by name:
//
//   numbers  input.neg_inf  input1.finite_min  output.numel  output.bad  output.share_of_limit
//            step  absmax  overflowed  in_backward ...
//   texts    op  op_name  layer  param  autograd_node  source  output.shape
//            output.first_bad_index ...
//
// `in_backward` is whether an op of a backward pass carried the value on.
// `input` and `output` alone mean the origin's first tensor with a non-finite value, else its
// first; `input1` the one at that index. `used` is what came in from outside (batch, target) as the
// op saw it that computed with it first: the origin of such an incident is where it entered, with a
// shape it may not have kept. `grown_what`, `grown_op`, `grown_layer`, `grown_from`, `grown_to`,
// `grown_levels` and `grown_before` (steps before the origin's in which it was large) are of
// growth.h. `limit` is the largest finite number of the tensor's type, 65504 for float16. What was
// not recorded has no value: the job checks inputs only while something bad is alive.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "verdict.pb.h"

namespace nanwatch {

// Whether a number has this name, in whatever incident.
[[nodiscard]] bool IsNumberName(std::string_view name);

[[nodiscard]] std::optional<double> NumberOf(const Incident& incident, std::string_view name);

// Numbers too, as people write them. Nothing when unknown or empty.
[[nodiscard]] std::optional<std::string> TextOf(const Incident& incident, std::string_view name);

// Replaces each {name}. Nothing when one of them is unknown.
[[nodiscard]] std::optional<std::string> FillIn(std::string_view sentence,
                                                const Incident& incident);

}  // namespace nanwatch
