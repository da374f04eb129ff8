// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/page_answers.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "daemon/report/page/html_page.h"

namespace nanwatch {
namespace {

constexpr std::string_view kApi = "/api/v1/runs/";
constexpr std::string_view kPages = "/runs/";

}  // namespace

std::string JsonBody(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

HttpAnswer RunListPage() {
  const HtmlPageOptions options = {
      .nonce = NewNonce(), .plain_text = "", .renew_from = kRunListPath};
  return {.type = kHtmlType, .body = HtmlRunList(options), .policy = PagePolicy(options)};
}

std::optional<RunPath> RunPathOf(const std::string& path) {
  if (path.starts_with(kPages)) {
    std::string name = path.substr(kPages.size());
    if (name.empty() || name.find('/') != std::string::npos) return std::nullopt;
    return RunPath{.name = std::move(name), .what = ""};
  }
  if (!path.starts_with(kApi)) return std::nullopt;
  const std::string rest = path.substr(kApi.size());
  const size_t slash = rest.rfind('/');
  if (slash == std::string::npos || slash == 0) return std::nullopt;
  RunPath found = {.name = rest.substr(0, slash), .what = rest.substr(slash + 1)};
  if (found.what != "verdict" && found.what != "page") return std::nullopt;
  return found;
}

std::string PageDocumentPath(const std::string& name) { return std::string(kApi) + name + "/page"; }

}  // namespace nanwatch
