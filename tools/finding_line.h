// SPDX-License-Identifier: Apache-2.0
// One finding as one line: for `tail`, people or programs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

struct FindingLine {
  std::string run;
  int32_t rank = 0;
  uint64_t ticket = 0;
  uint64_t real_ns = 0;  // when its op ended
  int64_t step = -1;
  int training = 0;  // of a notebook in which more than one ran: which, from 1
  std::string phase;
  std::string layer;
  std::string op;
  std::string finding_class;
  std::string source;  // the user's own line, where it is known
  std::string param;
  uint64_t nan = 0;
  uint64_t pos_inf = 0;
  uint64_t neg_inf = 0;
  uint64_t numel = 0;  // of the first output
  // Not "": no finding, but the kernels that the op of an earlier one ran, whose place this is.
  std::string kernels;

  bool operator==(const FindingLine&) const = default;
};

// The findings of a run with a ticket above `after`, and what was learnt about such, oldest first.
// Records whose site is not known are shown with what they say themselves.
[[nodiscard]] std::vector<FindingLine> FindingsAfter(const RunFacts& facts, uint64_t after);

// "12:03:11.250  7f3a9c21 rank 0  step 117  forward   encoder.0  aten::_softmax  inf_to_nan  NaN
// 1024 of 32768 ...".
[[nodiscard]] std::string LineAsText(const FindingLine& line);
[[nodiscard]] std::string LineAsJson(const FindingLine& line);  // one line, no newline

// An incident and an early warning; their text is that of daemon/report/incident_words.h.
[[nodiscard]] std::string IncidentAsJson(const Verdict& verdict, const Incident& incident);
[[nodiscard]] std::string WarningAsJson(const Warning& warning);

}  // namespace nanwatch
