// SPDX-License-Identifier: Apache-2.0
// What makes two occurrences the same incident, and what a user's rule excuses.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "daemon/correlate/origin.h"

namespace nanwatch {

using IncidentKey = std::string;

// The place: places are told apart by their texts, not by site numbers, which differ from process
// to process. What a rule excuses is an incident apart from what it does not, though it be at the
// same place.
[[nodiscard]] IncidentKey KeyOf(const Origin& origin);

// Origins that a rule of the user's excuses: their place and class -> the rule's text.
//
// An excused origin explains a value only where no other can: so a rule takes nothing away from
// another fault whose value meets its own.
using Excused = std::map<std::string, std::string, std::less<>>;

// The key of `origin` in Excused. With its class, because a rule may name one: the line that makes
// -Inf of zeros by design can also make NaN of NaN.
[[nodiscard]] std::string ExcuseKeyOf(const Origin& origin);

}  // namespace nanwatch
