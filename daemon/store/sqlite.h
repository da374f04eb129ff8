// SPDX-License-Identifier: Apache-2.0
// Adapter to SQLite: a database and its statements own what the C interface returns; errors are a
// Status. Knows nothing of what is stored. Not thread-safe: one thread per Database.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace nanwatch {

// Statements that are not in use, by their text: to prepare one takes longer than to run it.
class IdleStatements;

class Statement {
 public:
  // When it goes, what it ran is kept in `idle` for the next with the same text.
  Statement(sqlite3_stmt* statement, std::shared_ptr<IdleStatements> idle);

  // Parameters count from 1. Texts and blobs are copied.
  Statement& Bind(int parameter, int64_t value);
  Statement& BindUnsigned(int parameter, uint64_t value) {
    return Bind(parameter, static_cast<int64_t>(value));
  }
  Statement& BindText(int parameter, std::string_view text);
  Statement& BindBlob(int parameter, std::string_view bytes);
  Statement& BindNull(int parameter);

  // True while there is a row.
  [[nodiscard]] Result<bool> Next();
  // Runs it to its end and makes it ready for other parameters.
  [[nodiscard]] Status Run();

  // Columns of the row, counted from 0. Views hold until Next.
  [[nodiscard]] int64_t Integer(int column) const;
  [[nodiscard]] uint64_t Unsigned(int column) const {
    return static_cast<uint64_t>(Integer(column));
  }
  [[nodiscard]] bool IsNull(int column) const;
  [[nodiscard]] std::string_view Bytes(int column) const;  // text or blob
  [[nodiscard]] std::string Text(int column) const { return std::string(Bytes(column)); }

 private:
  struct GiveBack {
    std::shared_ptr<IdleStatements> idle;
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, GiveBack> statement_;
};

class Database {
 public:
  enum class Access : uint8_t { kRead, kWrite };

  // kWrite creates the file (0600) when there is none. Waits at most two seconds for another's
  // lock.
  static Result<Database> Open(const std::string& path, Access access);

  Database(Database&&) noexcept = default;
  Database& operator=(Database&& other) noexcept;
  ~Database();

  // Any number of statements, none of which gives rows.
  [[nodiscard]] Status Execute(const char* sql) const;
  [[nodiscard]] Result<Statement> Prepare(const char* sql) const;
  // The single integer that a query or pragma gives.
  [[nodiscard]] Result<int64_t> Ask(const char* sql) const;
  // Rows that the latest statement changed.
  [[nodiscard]] int64_t Changes() const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit Database(sqlite3* database);
  void LetGoOfStatements();
  std::unique_ptr<sqlite3, Close> database_;
  std::shared_ptr<IdleStatements> idle_;
};

// BEGIN ... COMMIT; what is not committed is rolled back when the object goes.
class Transaction {
 public:
  // A writing transaction takes the write lock now, a reading one sees one state of the database
  // throughout.
  static Result<Transaction> BeginWrite(const Database& database);
  static Result<Transaction> BeginRead(const Database& database);

  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  [[nodiscard]] Status Commit();

 private:
  explicit Transaction(const Database& database) : database_(&database) {}
  const Database* database_;  // null: committed or moved from
};

}  // namespace nanwatch
