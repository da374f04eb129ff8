// SPDX-License-Identifier: Apache-2.0
// One incident in the rows of the report; its words are those of incident_words.h.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// "NaN reached the parameters at step 117".
[[nodiscard]] std::string Headline(const Incident& incident);

// Why it happened and what to do about it; `evidence` is "" where no pattern fits. Text that Row()
// would keep on one line is not glued (Unglued).
struct IncidentReason {
  std::string why;
  std::string evidence;
  std::string remedy;
};
[[nodiscard]] IncidentReason ReasonOf(const Incident& incident);

// The rows from "origin" to "do", each wrapped at `width_columns`, ending with a newline.
// `source_path`: the whole path of the origin's file, printable; "" where it is not known.
[[nodiscard]] std::string IncidentRows(const Incident& incident, int width_columns,
                                       const std::string& source_path);

}  // namespace nanwatch
