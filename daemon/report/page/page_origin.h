// SPDX-License-Identifier: Apache-2.0
// The origin of the most important incident as JSON: the path that the bad value took, and what is
// known of where it began. Parts of PageDocument.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "daemon/report/page/page_document.h"

namespace nanwatch {

// The links from the origin to the furthest reach; empty without an incident.
[[nodiscard]] nlohmann::ordered_json PathJson(const Verdict& verdict);
// null without an incident.
[[nodiscard]] nlohmann::ordered_json OriginJson(const PageFacts& facts);

}  // namespace nanwatch
