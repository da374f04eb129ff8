// What a pattern may ask of a finding, by name:
//
//   numbers  input.neg_inf  input1.finite_min  output.numel  output.bad  output.inf  step  absmax
//   ... texts    op  op_name  layer  param  autograd_node  output.shape  output.first_bad_index ...
//
// `input` and `output` alone mean the first tensor with a non-finite value, else the first;
// `input1` the one at that index. What was not recorded has no value: the job looks at inputs only
// while something bad is alive.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "verdict.pb.h"

namespace nanwatch {

[[nodiscard]] std::optional<double> NumberOf(const Finding& finding, std::string_view name);

// Numbers too, as people write them. Nothing when unknown or empty.
[[nodiscard]] std::optional<std::string> TextOf(const Finding& finding, std::string_view name);

// Replaces each {name}. Nothing when one of them is unknown.
[[nodiscard]] std::optional<std::string> FillIn(std::string_view sentence, const Finding& finding);

}  // namespace nanwatch
