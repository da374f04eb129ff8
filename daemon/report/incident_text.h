// SPDX-License-Identifier: Apache-2.0
// One incident in the rows of the report; its words are those of incident_words.h.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// "NaN reached the parameters at step 117".
[[nodiscard]] std::string Headline(const Incident& incident);

// The rows from "origin" to "do", each wrapped at `width_columns`, ending with a newline.
[[nodiscard]] std::string IncidentRows(const Incident& incident, int width_columns);

}  // namespace nanwatch
