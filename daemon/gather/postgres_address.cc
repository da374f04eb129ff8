// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/postgres_address.h"

#include <libpq-fe.h>

#include <cstdlib>
#include <memory>
#include <utility>

namespace nanwatch {
namespace {

// libpq's own: no bound on a connect, and the system's on the rest, a quarter of an hour.
constexpr std::pair<const char*, const char*> kOtherwise[] = {{"connect_timeout", "10"},
                                                              {"tcp_user_timeout", "30000"},
                                                              {"keepalives_idle", "30"},
                                                              {"keepalives_interval", "10"},
                                                              {"keepalives_count", "3"}};

std::string Quoted(const std::string& value) {
  std::string text = "'";
  for (const char c : value) {
    if (c == '\'' || c == '\\') text += '\\';
    text += c;
  }
  return text + "'";
}

const char* DefaultOf(const std::string& keyword) {
  for (const auto& [name, value] : kOtherwise) {
    if (keyword == name) return value;
  }
  return nullptr;
}

}  // namespace

Result<std::string> WithTimeouts(const std::string& connection) {
  char* why = nullptr;
  const std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> options(
      PQconninfoParse(connection.c_str(), &why), &PQconninfoFree);
  const std::unique_ptr<char, decltype(&PQfreemem)> reason(why, &PQfreemem);
  if (options == nullptr) {
    std::string text = why == nullptr ? "no memory" : why;
    while (text.ends_with('\n')) text.pop_back();
    return Status(ErrorKind::kInvalid, "the database is given as no connection of libpq's (" +
                                           text +
                                           "): write it as 'host=db dbname=nanwatch user=gather'");
  }
  std::string whole;
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    const bool is_asked = option->val != nullptr;
    // PGCONNECT_TIMEOUT and its like still count.
    const bool is_set = option->envvar != nullptr && getenv(option->envvar) != nullptr;
    const char* const value = is_asked ? option->val
                              : is_set ? nullptr
                                       : DefaultOf(option->keyword);
    if (value == nullptr) continue;
    if (!whole.empty()) whole += ' ';
    whole += std::string(option->keyword) + "=" + Quoted(value);
  }
  return whole;
}

}  // namespace nanwatch
