// One incident in the words of the report.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// "NaN reached the parameters at step 117".
[[nodiscard]] std::string Headline(const Incident& incident);

// The rows from "origin" to "do", each wrapped at `width_columns`, ending with a newline.
[[nodiscard]] std::string IncidentRows(const Incident& incident, int width_columns);

// One line for an incident that is not told in full: place, what happened, how often.
[[nodiscard]] std::string IncidentSummary(const Incident& incident);

// By which rule of the user's it is expected, and how far it got all the same; "" when by none.
[[nodiscard]] std::string RuleText(const Incident& incident);

}  // namespace nanwatch
