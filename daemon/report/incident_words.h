// SPDX-License-Identifier: Apache-2.0
// An incident, its origin and a warning in words. What the report, `tail`, `top` and nanwatch.log
// say about one is put together here, so that it is called the same everywhere. Foreign text in it
// is printable.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "verdict.pb.h"

namespace nanwatch {

// "ANOMALY train.py, run 7f3a21c0, rank 0: step 117, forward, encoder.0 (Attention),
// aten::_softmax, Inf became NaN, model.py:41 in forward; reached loss, gradient, parameter".
[[nodiscard]] std::string IncidentLine(const Verdict& verdict, const Incident& incident);

// "warning train.py, run 7f3a21c0, rank 0: gradient norm 3.2e+06 at step 412, median 1.8 over the
// 100 steps before, 14 times more than its usual spread; the updates overshoot".
[[nodiscard]] std::string WarningLine(const std::string& program, const Warning& warning);
[[nodiscard]] std::string WarningLine(const Verdict& verdict, const Warning& warning);

// In one line of a report about something else: "aten::log, made NaN from finite values, head
// (Linear): 3 findings, steps 4 to 7". What is longer than `columns_max` loses the middle of its
// layer, then the end of the doubt about its op. The op's name stays whole, so it may be longer.
[[nodiscard]] std::string IncidentSummary(const Incident& incident, size_t columns_max);

// By which rule of the user's it is expected, and how far it got all the same; "" when by none.
[[nodiscard]] std::string RuleText(const Incident& incident);

// ---- parts

// "NaN" or "Inf", "" when none of these is either. Of an incident: what the bad value is by its
// furthest link that has numbers, "a non-finite value" where none has.
[[nodiscard]] std::string BadWord(const google::protobuf::RepeatedPtrField<TensorStats>& tensors);
[[nodiscard]] std::string BadWord(const Incident& incident);

// "step 117", "step unknown"; in full: also how else its time is counted where that differs.
[[nodiscard]] std::string StepText(const Finding& finding);
[[nodiscard]] std::string StepInFull(const Finding& finding);

// "encoder.0 (Attention)", "" outside any module.
[[nodiscard]] std::string Place(const Finding& finding);

// "forward, encoder.0 (Attention)", "the input batch, into encoder.0", "parameter fc.weight".
[[nodiscard]] std::string SiteText(const Finding& origin);

// "aten::_softmax, Inf became NaN", and why it may not be that op where that is in doubt.
[[nodiscard]] std::string WhatText(const Finding& origin);

// Of a link of the chain that reached something of the training's as a whole: "gradients of 3
// parameters", "36 parameters", "the optimizer's state"; "" of every other.
[[nodiscard]] std::string ReachedText(const Incident& incident, const Finding& link);

// Of the first buffer that it reached, "" when none has a name.
[[nodiscard]] std::string BufferName(const Incident& incident);

// "0; the same on 7 others: 1, 2, 3, 4, 5, 6, 7": the origin's rank, and those where the same line
// made it.
[[nodiscard]] std::string RanksText(const Incident& incident);

}  // namespace nanwatch
