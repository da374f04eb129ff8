// SPDX-License-Identifier: Apache-2.0
#include "tools/fleet_page.h"

#include <nlohmann/json.hpp>

#include "daemon/report/cell_text.h"
#include "daemon/report/text_report.h"
#include "tools/fleet_question.h"

namespace nanwatch {

using Json = nlohmann::ordered_json;

Result<Json> FleetPageDocument(const HttpClientOptions& fleet, const std::string& job,
                               const FleetVerdict& verdict) {
  const Result<std::string> page = AskFleetPage(fleet, job);
  if (!page.ok()) return page.status();
  Json document = Json::parse(*page, nullptr, false);
  if (!document.is_object() || document.value("schema", "") != "nanwatch.page/1")
    return Status(ErrorKind::kCorrupt,
                  "what the gatherer answered makes no sense to this version: use that of the "
                  "gatherer");
  document["remarks"] = Json::array();
  for (const std::string& remark : RemarksOn(verdict, job))
    document["remarks"].push_back(Printable(remark));
  return document;
}

Result<std::string> FleetPageFile(const HttpClientOptions& fleet, const std::string& job,
                                  const FleetVerdict& verdict, HtmlPageOptions options) {
  const Result<Json> document = FleetPageDocument(fleet, job, verdict);
  if (!document.ok()) return document.status();
  const bool live = document->value("live", false);
  if (options.nonce.empty()) options.nonce = NewNonce();
  if (options.plain_text.empty())
    options.plain_text = TextReport(verdict.verdict(), {.live = live});
  return HtmlPage(*document, options);
}

}  // namespace nanwatch
