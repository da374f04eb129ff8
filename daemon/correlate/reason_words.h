// SPDX-License-Identifier: Apache-2.0
// The halves of sentences of which reasons.h makes a story. Pure; each is in lower case and has no
// full stop.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/correlate/incident.h"
#include "verdict.pb.h"

namespace nanwatch {

// "NaN and Inf"; `kinds` are bits of wire::kHasNan and its like.
[[nodiscard]] std::string KindsText(uint32_t kinds);

// Why the origin is one; `parameter` is its name, or "".
[[nodiscard]] std::string OriginText(const Lineage& lineage, const Origin& origin,
                                     const std::string& parameter);

// Why another origin, which ran earlier, is not to blame for this one.
[[nodiscard]] std::string ApartText(const Origin& other);

// Why an input of the origin that was bad is not the origin; `behind` is where that input is from.
[[nodiscard]] std::string WeaknessText(const Origin& behind);

// Why the origin has its class; `origin` is how the verdict describes it.
[[nodiscard]] std::string ClassText(const Origin& source, const Finding& origin);

// Where the input of a value came from that no op is known to have written.
[[nodiscard]] std::string SourceText(const ValueNode& node);

// "the loss", "a gradient".
[[nodiscard]] std::string ReachTitle(const std::string& reach);

// ", and 3 parameters in all were bad at that point"; "" for fewer than two.
[[nodiscard]] std::string OthersText(uint32_t count, std::string_view one, std::string_view many);

// Why what was reached does not count; "" where it does.
[[nodiscard]] std::string JudgementText(const ReachEvent& event);

// Why the incident is as severe as it is.
[[nodiscard]] std::string SeverityText(const IncidentDraft& draft, const Incident& incident);

}  // namespace nanwatch
