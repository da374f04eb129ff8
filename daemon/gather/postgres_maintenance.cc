// SPDX-License-Identifier: Apache-2.0
// MaintainFleet of postgres.h.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <pqxx/pqxx>
#include <string>
#include <vector>

#include "daemon/gather/migrations.h"
#include "daemon/gather/postgres.h"
#include "daemon/gather/postgres_call.h"
#include "daemon/gather/postgres_days.h"

namespace nanwatch {
namespace {

constexpr int kDaysBehind = 2;
constexpr int kDaysAhead = 7;

// Days since 1970 in a body of a table's name, "fact_20261127"; -1: it is not one of ours.
int64_t DayOfPartition(const std::string& table) {
  constexpr std::string_view kPrefix = "fact_";
  if (table.size() != kPrefix.size() + 8 || !table.starts_with(kPrefix)) return -1;
  const std::string digits = table.substr(kPrefix.size());
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  const std::chrono::year_month_day day{
      std::chrono::year(std::stoi(digits.substr(0, 4))),
      std::chrono::month(static_cast<unsigned>(std::stoi(digits.substr(4, 2)))),
      std::chrono::day(static_cast<unsigned>(std::stoi(digits.substr(6, 2))))};
  return day.ok() ? std::chrono::sys_days(day).time_since_epoch().count() : -1;
}

constexpr char kBegin[] =
    "CREATE SCHEMA IF NOT EXISTS nanwatch;"
    "CREATE TABLE IF NOT EXISTS nanwatch.schema_version (version integer NOT NULL)";

// Before any of its partitions, as those who write take them: so nobody waits for each other.
constexpr char kLockParent[] = "LOCK TABLE ONLY nanwatch.fact IN ACCESS EXCLUSIVE MODE";

// One at a time maintains a database, until its connection ends. "nanwatch" in ASCII.
void LockMaintenance(pqxx::connection& connection) {
  pqxx::nontransaction(connection).exec("SELECT pg_advisory_lock(7953749933305062248)");
}

// Group roles: an operator grants them to those who log in.
void MakeRoles(pqxx::work& transaction) {
  for (const char* role : {"nanwatch_ingest", "nanwatch_read", "nanwatch_alert"}) {
    if (transaction.exec("SELECT 1 FROM pg_roles WHERE rolname = " + transaction.quote(role))
            .empty())
      transaction.exec(std::string("CREATE ROLE ") + role + " NOLOGIN");
  }
  const std::string name = transaction.exec1("SELECT current_database()")[0].as<std::string>();
  transaction.exec("GRANT TEMPORARY ON DATABASE " + transaction.quote_name(name) +
                   " TO nanwatch_ingest");
}

// The version that was there.
int Migrate(pqxx::connection& connection) {
  pqxx::work transaction(connection);
  transaction.exec(kBegin);
  transaction.exec("LOCK TABLE nanwatch.schema_version IN EXCLUSIVE MODE");
  const int before =
      transaction.exec1("SELECT COALESCE(MAX(version), 0) FROM nanwatch.schema_version")[0]
          .as<int>();
  if (before < kFleetSchemaVersion) MakeRoles(transaction);
  for (int version = before; version < kFleetSchemaVersion; ++version) {
    transaction.exec(kFleetMigrations[version]);
    transaction.exec("INSERT INTO nanwatch.schema_version VALUES (" + std::to_string(version + 1) +
                     ")");
  }
  transaction.commit();
  return before;
}

std::vector<std::string> PartitionsOf(pqxx::connection& connection) {
  pqxx::work transaction(connection);
  std::vector<std::string> names;
  for (const auto& row : transaction.exec(
           "SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON inhrelid = child.oid"
           " WHERE inhparent = 'nanwatch.fact'::regclass"))
    names.push_back(row[0].as<std::string>());
  return names;
}

// False where the day has one, or rows of it came before it was made: they stay where they are.
bool MakeDay(pqxx::connection& connection, int64_t day) {
  const std::string first = DayText(day);
  std::string digits = first;
  std::erase(digits, '-');
  pqxx::work transaction(connection);
  transaction.exec(kLockParent);
  if (!transaction
           .exec("SELECT 1 FROM nanwatch.fact_other WHERE day = " + transaction.quote(first) +
                 " LIMIT 1")
           .empty())
    return false;
  transaction.exec("CREATE TABLE nanwatch.fact_" + digits +
                   " PARTITION OF nanwatch.fact FOR VALUES FROM ('" + first + "') TO ('" +
                   DayText(day + 1) + "')");
  transaction.commit();
  return true;
}

// What is old by the clocks of its senders stays where it came lately, and findings as long as the
// state of their run, which says how many of them there are.
std::string IsKept(int keep_days) {
  return fmt::format(
      "(fact.received_at >= CURRENT_DATE - {} OR (fact.kind = {} AND EXISTS (SELECT 1 FROM"
      " nanwatch.run WHERE run.job = fact.job AND run.run = fact.run)))",
      keep_days, static_cast<int>(FleetKind::kFindings));
}

bool HasKept(pqxx::work& transaction, const std::string& table, const std::string& is_kept) {
  return !transaction.exec(fmt::format("SELECT 1 FROM {} AS fact WHERE {} LIMIT 1", table, is_kept))
              .empty();
}

// False where some rows of it stay. The parent is locked only for a day that is likely to go.
bool DropDay(pqxx::connection& connection, const std::string& name, const std::string& is_kept) {
  const std::string table = "nanwatch." + connection.quote_name(name);
  {
    pqxx::work transaction(connection);
    if (HasKept(transaction, table, is_kept)) {
      transaction.exec(fmt::format("DELETE FROM {} AS fact WHERE NOT {}", table, is_kept));
      transaction.commit();
      return false;
    }
  }
  pqxx::work transaction(connection);
  transaction.exec(kLockParent);
  transaction.exec(fmt::format("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", table));
  // What came meanwhile.
  if (HasKept(transaction, table, is_kept)) return false;
  transaction.exec(fmt::format("DROP TABLE {}", table));
  transaction.commit();
  return true;
}

// What the database refuses of one part leaves the others as they are.
class Parts {
 public:
  template <typename Work>
  void Do(const Work& work) {
    try {
      work();
    } catch (const pqxx::sql_error&) {
      if (!first_) first_ = std::current_exception();
    }
  }
  void Throw() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

void Delete(pqxx::connection& connection, const std::string& rows) {
  pqxx::work transaction(connection);
  transaction.exec("DELETE FROM " + rows);
  transaction.commit();
}

void MaintainDays(pqxx::connection& connection, int64_t today_days, int keep_days,
                  FleetMaintenance& done) {
  Parts parts;
  const std::vector<std::string> partitions = PartitionsOf(connection);
  for (int64_t day = today_days - kDaysBehind; day <= today_days + kDaysAhead; ++day) {
    const bool is_there =
        std::any_of(partitions.begin(), partitions.end(),
                    [&](const std::string& name) { return DayOfPartition(name) == day; });
    if (is_there) continue;
    parts.Do([&] { done.days_made += MakeDay(connection, day) ? 1 : 0; });
  }
  parts.Do([&] {
    Delete(connection,
           fmt::format("nanwatch.run WHERE received_at < CURRENT_DATE - {}", keep_days));
  });
  parts.Do([&] {
    Delete(connection, fmt::format("nanwatch.alert WHERE ended_at < CURRENT_DATE - {}", keep_days));
  });
  parts.Do([&] {
    Delete(connection, fmt::format("nanwatch.daemon WHERE claimed_at < CURRENT_DATE - {} AND NOT"
                                   " EXISTS (SELECT 1 FROM nanwatch.run WHERE run.daemon ="
                                   " daemon.daemon)",
                                   keep_days));
  });
  const std::string is_kept = IsKept(keep_days);
  for (const std::string& name : partitions) {
    const int64_t day = DayOfPartition(name);
    if (day < 0 || day >= today_days - keep_days) continue;
    parts.Do([&] { ++(DropDay(connection, name, is_kept) ? done.days_dropped : done.days_kept); });
  }
  parts.Do([&] { Delete(connection, "nanwatch.fact_other AS fact WHERE NOT " + is_kept); });
  parts.Throw();
}

}  // namespace

Result<FleetMaintenance> MaintainFleet(const std::string& connection, int64_t today_days,
                                       int keep_days) {
  FleetMaintenance done;
  std::unique_ptr<pqxx::connection> opened;
  const Status status = Do(opened, connection, [&](pqxx::connection& database, bool) {
    LockMaintenance(database);
    done.version_before = Migrate(database);
    if (done.version_before <= kFleetSchemaVersion)
      MaintainDays(database, today_days, keep_days, done);
  });
  if (!status.ok()) return status;
  if (done.version_before > kFleetSchemaVersion)
    return Status(ErrorKind::kUnsupported,
                  "the database has schema " + std::to_string(done.version_before) +
                      " of a newer nanwatch-gather; this one knows " +
                      std::to_string(kFleetSchemaVersion) + ": use the newer one");
  return done;
}

}  // namespace nanwatch
