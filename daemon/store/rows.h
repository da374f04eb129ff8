// SPDX-License-Identifier: Apache-2.0
// Rows of a query: counted, or read as the messages in their column `body`. A body that cannot be
// parsed was not written by us (kUnsupported). It says nothing of the file: what it belongs to
// fails, and the rest of the database stands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/store/sqlite.h"

namespace nanwatch {

template <typename Message>
Status Parse(std::string_view bytes, Message& out) {
  if (out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Status();
  return Status(ErrorKind::kUnsupported,
                "database: a row's body is not a " + Message::descriptor()->name());
}

// Every row of a query of one parameter, a key or a text, parsed into what `add` gives.
template <typename Message, typename Parameter, typename Add>
Status ParseRows(const Database& database, const char* sql, const Parameter& parameter, Add&& add) {
  Result<Statement> query = database.Prepare(sql);
  if (!query.ok()) return query.status();
  if constexpr (std::is_integral_v<Parameter>) {
    query->Bind(1, parameter);
  } else {
    query->BindText(1, parameter);
  }
  for (Result<bool> row = query->Next();; row = query->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) return Status();
    if (Status parsed = Parse(query->Bytes(0), add()); !parsed.ok()) return parsed;
  }
}

// The same as a list.
template <typename Message, typename Parameter>
Result<std::vector<Message>> ReadBodies(const Database& database, const char* sql,
                                        const Parameter& parameter) {
  std::vector<Message> bodies;
  Status read = ParseRows<Message>(database, sql, parameter,
                                   [&]() -> Message& { return bodies.emplace_back(); });
  if (!read.ok()) return read;
  return bodies;
}

// The number that a query of one run, by its key, gives.
inline Result<int64_t> CountRows(const Database& database, const char* sql, int64_t run) {
  Result<Statement> count = database.Prepare(sql);
  if (!count.ok()) return count.status();
  count->Bind(1, run);
  const Result<bool> row = count->Next();
  if (!row.ok()) return row.status();
  return count->Integer(0);
}

}  // namespace nanwatch
