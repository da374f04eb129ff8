// SPDX-License-Identifier: Apache-2.0
// The chain of an incident: the few findings that show how the value traveled.
#pragma once

#include <string_view>

#include "daemon/correlate/incident.h"

namespace nanwatch {

inline constexpr size_t kChainLinksMax = 16;

// The first time that `reach` was reached, of those that decided the incident's severity; null when
// none is known of the origin's own run.
[[nodiscard]] const ReachEvent* FirstOf(const IncidentDraft& draft, wire::Reach reach);

// Fills `incident.chain`: the origin first, then along the recorded descent the op in which Inf
// became NaN, the loss, the first bad gradient, the first bad parameter, optimizer state and
// buffer, and as many of the steps between as fit, earliest first. Needs `incident.origin`; fills
// in its parameter when the update names it.
void AddChain(const IncidentDraft& draft, Incident& incident);

// Of a finished incident: whether it reached that, and the first link of its chain that did; null
// where no link did whose step is known.
[[nodiscard]] bool Reaches(const Incident& incident, std::string_view reach);
[[nodiscard]] const Finding* LinkThatReached(const Incident& incident, std::string_view reach);

}  // namespace nanwatch
