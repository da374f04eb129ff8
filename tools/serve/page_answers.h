// SPDX-License-Identifier: Apache-2.0
// What `nanwatch serve` answers alike of this host and of a fleet: its paths, the page that lists
// the runs, types and text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "daemon/http/http_server.h"

namespace nanwatch {

inline constexpr char kJsonType[] = "application/json";
inline constexpr char kHtmlType[] = "text/html; charset=utf-8";
inline constexpr char kRunListPath[] = "/api/v1/runs";

// On one line, with a line break.
[[nodiscard]] std::string JsonBody(const nlohmann::ordered_json& json);

// "/"
[[nodiscard]] HttpAnswer RunListPage();

// "/runs/ID", and "/api/v1/runs/ID/" with "verdict" or "page".
struct RunPath {
  std::string name;  // ID
  std::string what;  // "verdict", "page"; "" is the page for people
};
[[nodiscard]] std::optional<RunPath> RunPathOf(const std::string& path);
// Where that page asks for its document again.
[[nodiscard]] std::string PageDocumentPath(const std::string& name);

}  // namespace nanwatch
