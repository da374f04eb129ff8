// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>

namespace nanwatch {
namespace {

bool IsAddress(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// "[::1]:80" -> "::1", "a:80" -> "a", lower case.
std::string WithoutPort(std::string_view host) {
  std::string name(host);
  if (name.starts_with('[')) {
    const size_t end = name.find(']');
    if (end == std::string::npos) return "";
    name = name.substr(1, end - 1);
  } else {
    name = name.substr(0, name.find(':'));
  }
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return name;
}

bool SameText(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

// "user:password" of base64; "" where it is none.
std::string FromBase64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return "";
    bits = (bits << 6 | static_cast<uint32_t>(digit)) & 0xffffff;
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

}  // namespace

bool IsOwnHost(std::string_view host, const std::vector<std::string>& names) {
  const std::string name = WithoutPort(host);
  if (name == "localhost" || IsAddress(name)) return true;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& own) { return WithoutPort(own) == name; }) &&
         !name.empty();
}

bool HasToken(std::string_view authorization, std::string_view token) {
  constexpr std::string_view kBearer = "Bearer ";
  constexpr std::string_view kBasic = "Basic ";
  if (authorization.starts_with(kBearer))
    return SameText(authorization.substr(kBearer.size()), token);
  if (!authorization.starts_with(kBasic)) return false;
  const std::string pair = FromBase64(authorization.substr(kBasic.size()));
  const size_t colon = pair.find(':');
  return colon != std::string::npos && SameText(std::string_view(pair).substr(colon + 1), token);
}

}  // namespace nanwatch
