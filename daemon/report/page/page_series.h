// SPDX-License-Identifier: Apache-2.0
// The pictures of a page as JSON: series by step, marks on them, the heat map and the strip of
// ranks. Parts of PageDocument.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "daemon/report/page/page_document.h"

namespace nanwatch {

// Those of which there is at least one value, thinned. With several ranks each column has the
// smallest and largest of all of them.
[[nodiscard]] nlohmann::ordered_json SeriesJson(const PageFacts& facts);
// Incidents that alarm, and warnings.
[[nodiscard]] nlohmann::ordered_json MarksJson(const Verdict& verdict);
[[nodiscard]] nlohmann::ordered_json HeatJson(const PageFacts& facts);
[[nodiscard]] nlohmann::ordered_json StripJson(const PageFacts& facts);

// `text` as a page may show it (page_document.h).
[[nodiscard]] std::string PageText(std::string_view text);

}  // namespace nanwatch
