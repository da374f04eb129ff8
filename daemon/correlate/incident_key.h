// SPDX-License-Identifier: Apache-2.0
// What makes two occurrences the same incident, and what a user's rule excuses.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "daemon/correlate/origin.h"

namespace nanwatch {

using IncidentKey = std::string;

// The site, by its texts: site numbers differ from process to process. What a rule excuses is a
// separate incident from what it does not, even at the same site.
[[nodiscard]] IncidentKey KeyOf(const Origin& origin);

// Origins that one of the user's rules excuses: their site and class -> the rule's text.
//
// An excused origin explains a value only if no other can. So a rule hides no other fault whose
// value meets its own.
using Excused = std::map<std::string, std::string, std::less<>>;

// The key of `origin` in Excused. With its class, because a rule may name one: the line that makes
// -Inf of zeros by design can also make NaN of NaN.
[[nodiscard]] std::string ExcuseKeyOf(const Origin& origin);

}  // namespace nanwatch
