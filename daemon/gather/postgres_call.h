// SPDX-License-Identifier: Apache-2.0
// How postgres*.cc call PostgreSQL: exceptions of libpqxx become a Status. Included by them alone.
#pragma once

#include <memory>
#include <pqxx/pqxx>
#include <string>

#include "daemon/base/status.h"

namespace nanwatch {

// What a failure says, without the line ends that the server puts into it.
inline std::string OneLine(const char* what) {
  std::string text(what);
  while (text.ends_with('\n') || text.ends_with(' ')) text.pop_back();
  for (char& c : text) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return text;
}

// Whether an error of the server says that the same may succeed later: class 40 (it ended the
// transaction), 53 (out of space or connections), 57 (shut down, cancelled), 58 (its system), 25006
// (it is a replica now).
inline bool MayPass(const std::string& code) {
  return code.starts_with("40") || code.starts_with("53") || code.starts_with("57") ||
         code.starts_with("58") || code == "25006";
}

// Whether it says that data are at fault: class 22 (they make no sense), 23 (a constraint), 54 (too
// long for an index).
inline bool IsOfData(const std::string& code) {
  return code.starts_with("22") || code.starts_with("23") || code.starts_with("54");
}

inline ErrorKind KindOfCode(const std::string& code) {
  if (MayPass(code)) return ErrorKind::kIo;
  return IsOfData(code) ? ErrorKind::kInvalid : ErrorKind::kPermission;
}

// As PostgreSQL writes an array, of words that may be empty and have nothing that needs escaping;
// "}" ends it.
inline void AddToArray(std::string& array, const std::string& word) {
  array += (array.empty() ? "{\"" : ",\"") + word + '"';
}

// Runs `work` on a connection that is made when there is none; exceptions of libpqxx end here. A
// connection that failed is not used again.
template <typename Work>
Status Do(std::unique_ptr<pqxx::connection>& connection, const std::string& where,
          const Work& work) {
  const bool is_new = connection == nullptr;
  try {
    if (is_new) connection = std::make_unique<pqxx::connection>(where);
    work(*connection, is_new);
    return Status();
  } catch (const pqxx::sql_error& error) {
    connection.reset();
    return Status(KindOfCode(error.sqlstate()), "PostgreSQL: " + OneLine(error.what()));
  } catch (const std::exception& error) {
    connection.reset();
    return Status(ErrorKind::kIo, "PostgreSQL: " + OneLine(error.what()));
  }
}

}  // namespace nanwatch
