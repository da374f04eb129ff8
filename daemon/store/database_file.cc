// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/database_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/store/run_batch_rows.h"
#include "daemon/store/schema.h"
#include "daemon/store/store.h"

namespace nanwatch {
namespace {

// Checking every page of a large database would keep the jobs waiting for seconds.
constexpr off_t kCheckedBytesMax = off_t{64} << 20;

// nanwatch.db.corrupt-2026-11-26T20:59:57.123Z, and its companions -wal and -shm.
constexpr const char* kAsideInfix = ".corrupt-";
// Of the databases that were moved aside, the oldest and the newest stay: what was there before the
// trouble began, and how it is now. Each may be as large as a database can be. Names sort by time.
void RemoveAsidesBetween(const std::string& prefix) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::set<std::string> asides;
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(fs::path(prefix).parent_path(), error)) {
    std::string file = entry.path();
    if (!file.starts_with(prefix)) continue;
    asides.insert(file.substr(0, file.find('Z', prefix.size()) + 1));
    files.push_back(std::move(file));
  }
  if (asides.size() <= 2) return;
  for (const std::string& file : files) {
    const bool is_kept = file.starts_with(*asides.begin()) || file.starts_with(*asides.rbegin());
    if (!is_kept) unlink(file.c_str());
  }
}

off_t FileBytes(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_size : 0;
}

std::string VersionPragma() { return "PRAGMA user_version = " + std::to_string(kSchemaVersion); }

Status TooNew(const std::string& path, int64_t version) {
  return Status(ErrorKind::kUnsupported,
                "the database " + path + " has schema " + std::to_string(version) +
                    " and was written by a newer nanwatch; this one knows schema " +
                    std::to_string(kSchemaVersion) +
                    ": use the newer one, or set NANWATCH_STATE_DIR to another directory");
}

Status Create(const Database& database) {
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  if (Status made = database.Execute(kSchema); !made.ok()) return made;
  if (Status set = database.Execute(VersionPragma().c_str()); !set.ok()) return set;
  const std::string application = "PRAGMA application_id = " + std::to_string(kApplicationId);
  if (Status set = database.Execute(application.c_str()); !set.ok()) return set;
  return transaction->Commit();
}

Status Migrate(const Database& database, int64_t version) {
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  for (int64_t from = version; from < kSchemaVersion; ++from) {
    Status done = database.Execute(kMigrations[from - 1]);
    if (!done.ok()) return done.WithContext("migrating from schema " + std::to_string(from));
  }
  if (Status set = database.Execute(VersionPragma().c_str()); !set.ok()) return set;
  return transaction->Commit();
}

Status CheckPages(const Database& database) {
  Result<Statement> check = database.Prepare("PRAGMA integrity_check(1)");
  if (!check.ok()) return check.status();
  const Result<bool> row = check->Next();
  if (!row.ok()) return row.status();
  if (*row && check->Bytes(0) != "ok")
    return Status(ErrorKind::kCorrupt, "database: " + check->Text(0));
  return Status();
}

// Version and tables as they are found, made current. kCorrupt when it is not a database of ours.
Result<std::string> MakeCurrent(const Database& database, const std::string& path) {
  const Result<int64_t> version = database.Ask("PRAGMA user_version");
  if (!version.ok()) return version.status();
  const Result<int64_t> tables = database.Ask("SELECT COUNT(*) FROM sqlite_master");
  if (!tables.ok()) return tables.status();
  if (*version > kSchemaVersion) return TooNew(path, *version);
  if (*version < 0 || (*version == 0 && *tables != 0)) {
    return Status(ErrorKind::kCorrupt, "it is not a nanwatch database");
  }
  const bool is_small = FileBytes(path) <= kCheckedBytesMax;
  if (Status check = is_small ? CheckPages(database) : Status(); !check.ok()) return check;
  if (*version == kSchemaVersion) {
    // A name in its schema may be spoilt while all pages make sense.
    const Status proved = ProveTables(database);
    if (proved.kind() == ErrorKind::kInvalid || proved.kind() == ErrorKind::kCorrupt)
      return Status(ErrorKind::kCorrupt, proved.message());
    return std::string();
  }
  Status done = *version == 0 ? Create(database) : Migrate(database, *version);
  if (!done.ok()) return done;
  if (*version == 0) return std::string();
  return "the database " + path + " was migrated from schema " + std::to_string(*version) + " to " +
         std::to_string(kSchemaVersion);
}

Result<OpenedDatabase> OpenOnce(const std::string& path) {
  Result<Database> database = Database::Open(path, Database::Access::kWrite);
  if (!database.ok()) return database.status();
  // NORMAL: a killed process loses nothing, a power cut what Store::Commit has not synced yet.
  if (Status set =
          database->Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                            "PRAGMA foreign_keys = ON; PRAGMA journal_size_limit = 16777216");
      !set.ok()) {
    return set;
  }
  Result<std::string> note = MakeCurrent(*database, path);
  if (!note.ok()) return note.status();
  return OpenedDatabase{*std::move(database), *std::move(note)};
}

// Writes the version that is there, to the disk.
Status ProveWritable(const Database& database) {
  const Result<int64_t> version = database.Ask("PRAGMA user_version");
  if (!version.ok()) return version.status();
  const std::string same =
      "PRAGMA synchronous = FULL; PRAGMA user_version = " + std::to_string(*version);
  return database.Execute(same.c_str());
}

// The same with a new database, which is removed again.
Status ProveWritableBeside(const std::string& path) {
  const std::string probe = std::filesystem::path(path).parent_path().string() + "/.write-test-" +
                            std::to_string(getpid()) + ".db";
  Status proved;
  {
    const Result<Database> database = Database::Open(probe, Database::Access::kWrite);
    proved = database.ok() ? database->Execute("PRAGMA synchronous = FULL; CREATE TABLE t (a)")
                           : database.status();
  }
  for (const char* companion : {"", "-journal"}) unlink((probe + companion).c_str());
  return proved;
}

}  // namespace

Status CheckDatabase(const std::string& path) {
  const Result<Database> database = Database::Open(path, Database::Access::kRead);
  return database.ok() ? CheckPages(*database) : database.status();
}

DatabaseHealth ExamineDatabase(const std::string& path) {
  const Result<OpenedDatabase> opened = OpenOnce(path);
  Status proved = opened.ok() ? ProveWritable(opened->database) : opened.status();
  if (proved.ok()) proved = ProveTables(opened->database);
  switch (proved.kind()) {
    case ErrorKind::kNone:
      return DatabaseHealth::kUsable;
    case ErrorKind::kCorrupt:
    case ErrorKind::kInvalid:  // its tables are not ours any more
      return DatabaseHealth::kUnusable;
    case ErrorKind::kIo:
      return ProveWritableBeside(path).ok() ? DatabaseHealth::kUnusable : DatabaseHealth::kUnknown;
    default:
      return DatabaseHealth::kUnknown;
  }
}

Result<OpenedDatabase> OpenDatabaseForWriting(const std::string& path,
                                              Store::WhenDamaged when_damaged) {
  Result<OpenedDatabase> opened = OpenOnce(path);
  if (opened.ok() || opened.status().kind() != ErrorKind::kCorrupt ||
      when_damaged == Store::WhenDamaged::kLeave)
    return opened;
  const Result<std::string> aside = MoveAside(path);
  if (!aside.ok()) return aside.status();
  const std::string why = opened.status().message();
  opened = OpenOnce(path);
  if (opened.ok()) {
    opened->note = "the database " + path + " was damaged (" + why + "): it was moved to " +
                   *aside + ", and a new one was created";
  }
  return opened;
}

Result<OpenedDatabase> OpenDatabaseForReading(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) {
    return Status(ErrorKind::kNotFound,
                  "there is no database at " + path + " yet: nothing was recorded there");
  }
  Result<Database> database = Database::Open(path, Database::Access::kRead);
  if (!database.ok()) return database.status();
  const Result<int64_t> version = database->Ask("PRAGMA user_version");
  if (!version.ok()) return version.status().WithContext(path);
  if (*version == kSchemaVersion) return OpenedDatabase{*std::move(database), ""};
  if (*version > kSchemaVersion) return TooNew(path, *version);
  if (*version == 0) return Status(ErrorKind::kNotFound, "the database " + path + " is empty");
  return Status(ErrorKind::kUnsupported, "the database " + path + " has the older schema " +
                                             std::to_string(*version) +
                                             ": start nanwatchd once to migrate it");
}

Result<std::string> MoveAside(const std::string& path) { return MoveAsideBy(path, &rename); }

Result<std::string> MoveAsideBy(const std::string& path, const RenameFile& rename) {
  const std::string prefix = path + kAsideInfix;
  const std::string aside = prefix + FormatUtc(SystemClock().real_ns());
  std::vector<const char*> moved;
  for (const char* companion :
       {"-wal", "-shm", ""}) {  // the database last: while it is there, so is everything else
    if (rename((path + companion).c_str(), (aside + companion).c_str()) == 0) {
      moved.push_back(companion);
    } else if (errno != ENOENT) {
      const int error = errno;
      for (const char* back : moved) (void)rename((aside + back).c_str(), (path + back).c_str());
      return Status::FromErrno(error, "cannot move the damaged database " + path + " aside");
    }
  }
  RemoveAsidesBetween(prefix);
  return aside;
}

}  // namespace nanwatch
