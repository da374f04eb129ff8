// SPDX-License-Identifier: Apache-2.0
// The page of a fleet's job: the gatherer's document, and what a person has to know beside it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "daemon/base/status.h"
#include "daemon/http/http_client.h"
#include "daemon/report/page/html_page.h"
#include "fleet.pb.h"

namespace nanwatch {

// nanwatch.page/1 with `remarks`.
[[nodiscard]] Result<nlohmann::ordered_json> FleetPageDocument(const HttpClientOptions& fleet,
                                                               const std::string& job,
                                                               const FleetVerdict& verdict);

// As HTML; nonce and plain text of `options` are made here where they are "".
[[nodiscard]] Result<std::string> FleetPageFile(const HttpClientOptions& fleet,
                                                const std::string& job, const FleetVerdict& verdict,
                                                HtmlPageOptions options);

}  // namespace nanwatch
