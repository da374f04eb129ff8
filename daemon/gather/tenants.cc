// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "daemon/http/listen_address.h"

namespace nanwatch {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr size_t kNameBytesMax = 64;

bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= kNameBytesMax &&
         text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._") ==
             std::string::npos;
}

}  // namespace

Result<std::vector<HttpToken>> ReadTenants(const std::string& path) {
  const Result<std::string> text = ReadSecret(path, kFileBytesMax);
  if (!text.ok()) return text.status();
  std::vector<HttpToken> tenants;
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    HttpToken one;
    std::string more;
    if (!(words >> one.tenant) || one.tenant.starts_with('#')) continue;
    // Neither word is repeated here: this goes into logs.
    if (!IsName(one.tenant) || !(words >> one.token) || !IsToken(one.token) || (words >> more))
      return Status(ErrorKind::kInvalid,
                    fmt::format("{}:{}: a tenant is a name of letters and digits, and a token of "
                                "at least 16 of them",
                                path, number));
    if (std::any_of(tenants.begin(), tenants.end(),
                    [&](const HttpToken& known) { return known.token == one.token; }))
      return Status(ErrorKind::kInvalid,
                    fmt::format("{}:{}: that token is in a line before", path, number));
    tenants.push_back(std::move(one));
  }
  if (tenants.empty()) return Status(ErrorKind::kInvalid, path + " has no tenant");
  return tenants;
}

}  // namespace nanwatch
