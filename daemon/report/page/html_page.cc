// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/page/html_page.h"

#include <sys/random.h>

#include <array>
#include <nlohmann/json.hpp>

#include "daemon/report/page/page_assets.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

std::string Head(const std::string& title, const HtmlPageOptions& options) {
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"" +
         PagePolicy(options) +
         "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n"
         "<meta name=\"referrer\" content=\"no-referrer\">\n"
         "<link rel=\"icon\" href=\"data:,\">\n<title>" +
         HtmlText(title) + "</title>\n<style nonce=\"" + options.nonce + "\">\n" +
         std::string(kPageStyle) + "</style>\n</head>\n";
}

std::string Script(std::string_view text, const HtmlPageOptions& options) {
  return "<script nonce=\"" + options.nonce + "\">\n" + std::string(text) + "\n</script>\n";
}

std::string Text(const Json& json, const char* field) {
  const auto found = json.find(field);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string HtmlText(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string HtmlData(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string escaped;
  escaped.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (rest.front() == '<') {
      escaped += "\\u003c";
    } else if (rest.front() == '>') {
      escaped += "\\u003e";
    } else if (rest.front() == '&') {
      escaped += "\\u0026";
    } else if (rest.starts_with("\u2028") || rest.starts_with("\u2029")) {
      escaped += rest.starts_with("\u2028") ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      escaped += rest.front();
    }
  }
  return escaped;
}

std::string PagePolicy(const HtmlPageOptions& options) {
  const std::string connect = options.renew_from.empty() ? "'none'" : "'self'";
  return "default-src 'none'; script-src 'nonce-" + options.nonce + "'; style-src 'nonce-" +
         options.nonce + "'; img-src data:; connect-src " + connect +
         "; base-uri 'none'; form-action 'none'";
}

std::string NewNonce() {
  std::array<unsigned char, 16> random{};
  // Up to 256 bytes are given whole or, before the kernel has any, waited for.
  while (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
  }
  std::string nonce;
  for (const unsigned char byte : random) {
    nonce += "0123456789abcdef"[byte >> 4];
    nonce += "0123456789abcdef"[byte & 15];
  }
  return nonce;
}

std::string HtmlPage(const Json& document, const HtmlPageOptions& options) {
  const std::string program = Text(document, "program");
  const Json verdict = document.value("verdict", Json::object());
  const std::string word = Text(verdict, "word");
  std::string page =
      Head(word + ": " + (program.empty() ? Text(document, "job") : program), options);
  page +=
      "<body data-renew-from=\"" + HtmlText(options.renew_from) + "\">\n" + std::string(kPageBody) +
      "<noscript><pre class=\"plain\">" + HtmlText(options.plain_text) + "</pre></noscript>\n" +
      "<script type=\"application/json\" id=\"page-data\">" + HtmlData(document) + "</script>\n";
  page += Script(kPageScript, options) + Script(kDygraphsScript, options) +
          Script(kPageStartScript, options);
  return page + "</body>\n</html>\n";
}

std::string HtmlRunList(const HtmlPageOptions& options) {
  return Head("nanwatch", options) + "<body data-renew-from=\"" + HtmlText(options.renew_from) +
         "\">\n" + std::string(kRunListBody) + Script(kPageScript, options) +
         Script(kRunListScript, options) + "</body>\n</html>\n";
}

}  // namespace nanwatch
