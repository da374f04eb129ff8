// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/postgres.h"

#include <array>
#include <pqxx/pqxx>
#include <utility>

#include "daemon/gather/postgres_call.h"
#include "daemon/gather/postgres_days.h"
#include "daemon/gather/postgres_owners.h"
#include "verdict.pb.h"

namespace nanwatch {
namespace {

// As COPY and literals take it.
std::string Hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "\\x";
  text.reserve(2 + bytes.size() * 2);
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

constexpr std::array kStagingColumns = {
    "daemon", "sequence",   "day",     "kind", "job",   "run",  "rank",  "recorded_ns",
    "launch", "world_size", "attempt", "host", "ended", "body", "tenant"};

constexpr char kMakeStaging[] =
    "SET statement_timeout = '30s';"
    "CREATE TEMPORARY TABLE staging (daemon uuid, sequence bigint, day date, kind smallint,"
    " job text, run text, rank integer, recorded_ns bigint, launch text, world_size integer, "
    "attempt integer,"
    " host text, ended boolean, body bytea, tenant text) ON COMMIT DELETE ROWS";

// In one order everywhere, so that gatherers that write the same rows wait for each other and do
// not block each other. Without a conflict target, because naming one takes the right to read.
constexpr char kWriteFacts[] =
    "INSERT INTO nanwatch.fact"
    " (daemon, sequence, day, kind, job, run, rank, recorded_ns, body, tenant)"
    " SELECT daemon, sequence, day, kind, job, run, rank, recorded_ns, body, tenant FROM staging"
    " WHERE kind <> 1 ORDER BY day, daemon, sequence ON CONFLICT DO NOTHING";

// The newest of each run, where none is there that is as new.
constexpr char kWriteRuns[] =
    "INSERT INTO nanwatch.run (daemon, run, sequence, job, launch, rank, world_size, attempt, "
    "host, ended,"
    " recorded_ns, body, tenant)"
    " SELECT daemon, run, sequence, job, launch, rank, world_size, attempt, host, ended, "
    "recorded_ns,"
    " body, tenant"
    " FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY daemon, run ORDER BY sequence DESC) AS place"
    "  FROM staging WHERE kind = 1) AS newest WHERE place = 1 AND NOT EXISTS (SELECT 1 FROM"
    "  nanwatch.run AS known WHERE known.daemon = newest.daemon AND known.run = newest.run"
    "  AND known.sequence >= newest.sequence) ORDER BY daemon, run ON CONFLICT DO NOTHING";

// LIMIT, so that it looks by the index and never reads the table; the days as a parameter, so that
// partitions of others are neither planned for nor locked.
constexpr char kMissing[] =
    "SELECT place FROM UNNEST(CAST($1 AS uuid[]), CAST($2 AS bigint[]), CAST($3 AS date[]),"
    "  CAST($4 AS text[]), CAST($5 AS text[])) WITH ORDINALITY"
    "  AS held (daemon, sequence, day, run, tenant, place)"
    " LEFT JOIN LATERAL (SELECT 1 AS is_there FROM nanwatch.fact WHERE fact.day = held.day"
    "  AND fact.day = ANY (CAST($6 AS date[])) AND fact.daemon = held.daemon"
    "  AND fact.sequence = held.sequence LIMIT 1) AS known_fact ON held.run = ''"
    " LEFT JOIN LATERAL (SELECT 1 AS is_there FROM nanwatch.run WHERE run.daemon = held.daemon"
    "  AND run.run = held.run AND run.sequence >= held.sequence LIMIT 1) AS known_run"
    "  ON held.run <> ''"
    " LEFT JOIN LATERAL (SELECT tenant FROM nanwatch.daemon WHERE daemon.daemon = held.daemon"
    "  LIMIT 1) AS owner ON TRUE"
    " WHERE known_fact.is_there IS NULL AND known_run.is_there IS NULL"
    "  AND COALESCE(owner.tenant, held.tenant) = held.tenant";

// Whether the schema is of version 5 or later: before, who sends may not ask for a row.
constexpr char kMayAsk[] =
    "SELECT 1 FROM information_schema.column_privileges WHERE table_schema = 'nanwatch'"
    " AND table_name = 'fact' AND column_name = 'sequence' AND privilege_type = 'SELECT' LIMIT 1";

constexpr char kDropOldRuns[] =
    "DELETE FROM nanwatch.run AS known USING staging WHERE staging.kind = 1"
    " AND known.daemon = staging.daemon AND known.run = staging.run"
    " AND known.sequence < staging.sequence";

// Text for a column of PostgreSQL, which has no NUL.
std::string Clean(std::string text) {
  for (char& c : text) {
    if (c == '\0') c = ' ';
  }
  return text;
}

std::string DayOf(uint64_t recorded_ns) {
  constexpr uint64_t kDayNs = uint64_t{86'400} * 1'000'000'000;
  return DayText(static_cast<int64_t>(recorded_ns / kDayNs));
}

using StagedRow = std::array<std::string, kStagingColumns.size()>;

StagedRow Staged(const FleetRow& row) {
  RunFacts facts;
  if (row.kind == FleetKind::kRun) (void)facts.ParseFromString(row.body);
  return {row.daemon,
          std::to_string(row.sequence),
          DayOf(row.recorded_ns),
          std::to_string(static_cast<int>(row.kind)),
          row.job,
          row.run,
          std::to_string(row.rank),
          std::to_string(row.recorded_ns),
          row.launch,
          std::to_string(facts.run().world_size()),
          std::to_string(facts.run().attempt()),
          Clean(facts.run().host()),
          facts.state().ended() ? "t" : "f",
          Hex(row.body),
          row.tenant};
}

std::set<HeldRow> Missing(pqxx::work& transaction, std::span<const HeldRow> held) {
  if (held.empty()) return {};
  std::array<std::string, 5> columns;
  std::set<std::string> distinct_days;
  for (const HeldRow& row : held) {
    const std::array<std::string, 5> words = {row.daemon, std::to_string(row.sequence),
                                              DayOf(row.recorded_ns), row.run_of_state, row.tenant};
    for (size_t i = 0; i < columns.size(); ++i) AddToArray(columns[i], words[i]);
    distinct_days.insert(words[2]);
  }
  for (std::string& column : columns) column += '}';
  std::string days;
  for (const std::string& day : distinct_days) AddToArray(days, day);
  days += '}';
  std::set<HeldRow> missing;
  for (const auto& row : transaction.exec_params(kMissing, columns[0], columns[1], columns[2],
                                                 columns[3], columns[4], days))
    missing.insert(held[row[0].as<size_t>() - 1]);
  return missing;
}

class PostgresWriter final : public FleetWriter {
 public:
  explicit PostgresWriter(std::string where) : where_(std::move(where)) {}

  Status Write(std::span<const FleetRow> rows, std::span<const HeldRow> held,
               WriteCounts& counts) override {
    return Do(connection_, where_, [&](pqxx::connection& connection, bool is_new) {
      if (is_new) {
        pqxx::nontransaction setup(connection);
        setup.exec(kMakeStaging);
        // It may be another database, or an older state of the same.
        owners_ = {};
        may_ask_ = !setup.exec(kMayAsk).empty();
      }
      pqxx::work transaction(connection);
      std::set<HeldRow> missing =
          Missing(transaction, may_ask_ ? held : std::span<const HeldRow>());
      std::set<DaemonOfTenant> foreign = owners_.Claim(transaction, rows);
      pqxx::stream_to stream(transaction, "staging", kStagingColumns);
      uint64_t staged = 0;
      for (const FleetRow& row : rows) {
        if (!foreign.empty() && foreign.contains({row.daemon, row.tenant})) continue;
        stream << Staged(row);
        ++staged;
      }
      stream.complete();
      const uint64_t written = transaction.exec(kWriteFacts).affected_rows() +
                               transaction.exec(kWriteRuns).affected_rows();
      transaction.exec(kDropOldRuns);
      transaction.commit();
      owners_.Remember();
      counts = {.written = written,
                .duplicates = staged - written,
                .foreign = std::move(foreign),
                .missing = std::move(missing)};
    });
  }

 private:
  std::string where_;
  DaemonOwners owners_;
  bool may_ask_ = false;
  std::unique_ptr<pqxx::connection> connection_;
};

}  // namespace

std::unique_ptr<FleetWriter> MakeFleetWriter(const std::string& connection) {
  return std::make_unique<PostgresWriter>(connection);
}

}  // namespace nanwatch
