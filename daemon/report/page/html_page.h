// SPDX-License-Identifier: Apache-2.0
// A page about a job: one HTML file that needs no other. Style, scripts (those of dygraphs, MIT, and
// page/*.js) and data are in it, and a Content-Security-Policy allows these and no connection.
//
// Texts of the job are in the data alone, where no character ends it or begins a tag, and scripts
// show them as text nodes. Without scripts the report is there as plain text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace nanwatch {

struct HtmlPageOptions {
  // Random, at least 128 bits, letters and digits: names the scripts and styles that may run.
  std::string nonce;
  std::string plain_text;  // shown where scripts do not run
  std::string renew_from =
      {};  // path of the document, on the server that sends the page; "" a file
};

[[nodiscard]] std::string HtmlPage(const nlohmann::ordered_json& document,
                                   const HtmlPageOptions& options);

// A page of runs, which reads them from /api/v1/runs.
[[nodiscard]] std::string HtmlRunList(const HtmlPageOptions& options);

// The policy that the page has in itself, for the header of an answer.
[[nodiscard]] std::string PagePolicy(const HtmlPageOptions& options);

// ---- parts

// `text` where HTML has text or the value of an attribute.
[[nodiscard]] std::string HtmlText(std::string_view text);

// `json` for a <script type="application/json">: no '<', '>', '&', and nothing that a script takes
// for the end of a line.
[[nodiscard]] std::string HtmlData(const nlohmann::ordered_json& json);

// 32 hexadecimal digits from the kernel's random numbers.
[[nodiscard]] std::string NewNonce();

}  // namespace nanwatch
