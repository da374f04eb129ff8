// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>

#include <cerrno>
#include <new>
#include <unordered_map>
#include <utility>

#include "daemon/base/unique_fd.h"

namespace nanwatch {
namespace {

// What writes here holds its lock for moments. A reader says sooner that it waits in vain: a person
// waits for it.
constexpr int kBusyTimeoutMs = 2000;
constexpr int kBusyReaderTimeoutMs = 1000;

// kIo is said of the disk only: a database that gives it for long may be moved aside.
ErrorKind KindOf(int code, sqlite3* database) {
  if (code == SQLITE_IOERR_NOMEM) return ErrorKind::kResources;
  switch (code & 0xff) {
    case SQLITE_NOMEM:
      return ErrorKind::kResources;
    case SQLITE_FULL:
      return ErrorKind::kFull;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorKind::kCorrupt;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return ErrorKind::kBusy;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return ErrorKind::kPermission;
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR: {
      const int error = database == nullptr ? 0 : sqlite3_system_errno(database);
      if (error == ENOSPC || error == EDQUOT || error == EFBIG) return ErrorKind::kFull;
      if (error == EMFILE || error == ENFILE || error == ENOMEM) return ErrorKind::kResources;
      return error == EACCES || error == EPERM ? ErrorKind::kPermission : ErrorKind::kIo;
    }
    default:
      return ErrorKind::kInvalid;  // what was asked for, not the file
  }
}

Status Failure(int code, sqlite3* database) {
  const char* message = database == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(database);
  return Status(KindOf(code, database), std::string("database: ") + message);
}

// Each allocation of SQLite's would take a lock to be counted, and nobody asks for the count.
void CountNoMemory() {
  static const int once = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  (void)once;
}

}  // namespace

// ---- IdleStatements

class IdleStatements {
 public:
  // Null: there is none with this text.
  sqlite3_stmt* Take(const std::string& sql) {
    const auto found = by_text_.find(sql);
    if (found == by_text_.end()) return nullptr;
    sqlite3_stmt* const statement = found->second;
    by_text_.erase(found);
    return statement;
  }

  // What is one too many, or came when the database was closed, is finalized. So are pragmas, some
  // of which act when they are prepared. Memory may be what is missing.
  void GiveBack(sqlite3_stmt* statement) noexcept {
    const std::string_view sql = sqlite3_sql(statement);
    bool kept = false;
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    try {
      if (is_open_ && by_text_.size() < kMost && !sql.starts_with("PRAGMA"))
        kept = by_text_.emplace(sql, statement).second;
    } catch (const std::bad_alloc&) {
    }
    if (!kept) sqlite3_finalize(statement);
  }

  void Close() {
    is_open_ = false;
    for (const auto& [sql, statement] : by_text_) sqlite3_finalize(statement);
    by_text_.clear();
  }

 private:
  static constexpr size_t kMost = 64;
  std::unordered_map<std::string, sqlite3_stmt*> by_text_;
  bool is_open_ = true;
};

// ---- Statement

Statement::Statement(sqlite3_stmt* statement, std::shared_ptr<IdleStatements> idle)
    : statement_(statement, GiveBack{std::move(idle)}) {}

void Statement::GiveBack::operator()(sqlite3_stmt* statement) const { idle->GiveBack(statement); }

Statement& Statement::Bind(int parameter, int64_t value) {
  sqlite3_bind_int64(statement_.get(), parameter, value);
  return *this;
}
Statement& Statement::BindText(int parameter, std::string_view text) {
  sqlite3_bind_text(statement_.get(), parameter, text.data(), static_cast<int>(text.size()),
                    SQLITE_TRANSIENT);
  return *this;
}
Statement& Statement::BindBlob(int parameter, std::string_view bytes) {
  // An empty message is an empty blob, not NULL: a null pointer would bind NULL.
  const char* data = bytes.empty() ? "" : bytes.data();
  sqlite3_bind_blob64(statement_.get(), parameter, data, bytes.size(), SQLITE_TRANSIENT);
  return *this;
}
Statement& Statement::BindNull(int parameter) {
  sqlite3_bind_null(statement_.get(), parameter);
  return *this;
}

Result<bool> Statement::Next() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return Failure(code, sqlite3_db_handle(statement_.get()));
}

Status Statement::Run() {
  const int code = sqlite3_step(statement_.get());
  Status status;
  if (code != SQLITE_DONE && code != SQLITE_ROW)
    status = Failure(code, sqlite3_db_handle(statement_.get()));
  sqlite3_reset(statement_.get());
  return status;
}

int64_t Statement::Integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}
bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}
std::string_view Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int bytes = sqlite3_column_bytes(statement_.get(), column);
  return data == nullptr
             ? std::string_view()
             : std::string_view(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

// ---- Database

void Database::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Database::Database(sqlite3* database)
    : database_(database), idle_(std::make_shared<IdleStatements>()) {}

// Before the database is closed: what is open of it would keep it so.
void Database::LetGoOfStatements() {
  if (idle_ != nullptr) idle_->Close();
}

Database& Database::operator=(Database&& other) noexcept {
  LetGoOfStatements();
  database_ = std::move(other.database_);
  idle_ = std::move(other.idle_);
  return *this;
}

Database::~Database() { LetGoOfStatements(); }

Result<Database> Database::Open(const std::string& path, Access access) {
  const bool write = access == Access::kWrite;
  // SQLite would make it readable to the group and others. O_EXCL: closing a descriptor of a
  // database that is in use would drop the locks that this process holds on it.
  if (write) UniqueFd made(open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  CountNoMemory();
  sqlite3* raw = nullptr;
  const int flags = (write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY) |
                    SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) return Failure(code, raw).WithContext(path);
  sqlite3_busy_timeout(raw, write ? kBusyTimeoutMs : kBusyReaderTimeoutMs);
  return database;
}

Status Database::Execute(const char* sql) const {
  const int code = sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : Failure(code, database_.get());
}

Result<Statement> Database::Prepare(const char* sql) const {
  sqlite3_stmt* raw = idle_->Take(sql);
  if (raw != nullptr) return Statement(raw, idle_);
  const int code =
      sqlite3_prepare_v3(database_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  if (code != SQLITE_OK) return Failure(code, database_.get());
  return Statement(raw, idle_);
}

Result<int64_t> Database::Ask(const char* sql) const {
  Result<Statement> statement = Prepare(sql);
  if (!statement.ok()) return statement.status();
  const Result<bool> row = statement->Next();
  if (!row.ok()) return row.status();
  return *row ? statement->Integer(0) : int64_t{0};
}

int64_t Database::Changes() const { return sqlite3_changes64(database_.get()); }

// ---- Transaction

namespace {

Status RunOnce(const Database& database, const char* sql) {
  Result<Statement> statement = database.Prepare(sql);
  return statement.ok() ? statement->Run() : statement.status();
}

}  // namespace

Result<Transaction> Transaction::BeginWrite(const Database& database) {
  if (Status begun = RunOnce(database, "BEGIN IMMEDIATE"); !begun.ok()) return begun;
  return Transaction(database);
}
Result<Transaction> Transaction::BeginRead(const Database& database) {
  if (Status begun = RunOnce(database, "BEGIN"); !begun.ok()) return begun;
  return Transaction(database);
}
Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}
Transaction::~Transaction() {
  // Failing is no news: SQLite rolls back by itself after a full disk.
  if (database_ != nullptr) (void)RunOnce(*database_, "ROLLBACK");
}
Status Transaction::Commit() {
  if (Status committed = RunOnce(*database_, "COMMIT"); !committed.ok()) return committed;
  database_ = nullptr;
  return Status();
}

}  // namespace nanwatch
