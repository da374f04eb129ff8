// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "daemon/gather/fleet_reader.h"
#include "daemon/gather/postgres_call.h"

namespace nanwatch {
namespace {

constexpr char kJobs[] =
    "SELECT job, COUNT(DISTINCT run), COUNT(DISTINCT host), MAX(world_size),"
    " SUM(CASE WHEN ended THEN 1 ELSE 0 END),"
    " (SELECT COUNT(*) FROM nanwatch.fact WHERE fact.job = run.job AND kind = 4),"
    " MAX(received_at) AT TIME ZONE 'UTC'"
    " FROM nanwatch.run GROUP BY job ORDER BY MAX(received_at) DESC LIMIT ";

constexpr char kRows[] =
    "SELECT daemon, sequence, kind, run, rank, body FROM ("
    " SELECT daemon, sequence, 1 AS kind, run, rank, body FROM nanwatch.run WHERE job = $1"
    " UNION ALL SELECT daemon, sequence, kind, run, rank, body FROM nanwatch.fact"
    "  WHERE job = $1 AND kind = 2) AS rows ORDER BY kind, sequence LIMIT $2";

class PostgresReader final : public FleetReader {
 public:
  explicit PostgresReader(std::string where) : where_(std::move(where)) {}

  Result<std::vector<FleetJob>> Jobs() override {
    std::vector<FleetJob> jobs;
    const Status done = Do(connection_, where_, [&](pqxx::connection& connection, bool) {
      pqxx::read_transaction transaction(connection);
      for (const auto& row : transaction.exec(kJobs + std::to_string(kFleetJobsMax))) {
        jobs.push_back({.job = row[0].as<std::string>(),
                        .runs = row[1].as<int64_t>(),
                        .hosts = row[2].as<int64_t>(),
                        .world_size = row[3].as<int64_t>(),
                        .ended = row[4].as<int64_t>(),
                        .incidents = row[5].as<int64_t>(),
                        .heard_at = row[6].as<std::string>()});
      }
    });
    if (!done.ok()) return done;
    return jobs;
  }

  Result<FleetJobRows> RowsOfJob(const std::string& job) override {
    FleetJobRows found;
    const Status done = Do(connection_, where_, [&](pqxx::connection& connection, bool) {
      pqxx::read_transaction transaction(connection);
      for (const auto& row : transaction.exec_params(kRows, job, kFleetRowsMax + 1)) {
        const pqxx::binarystring body(row[5]);
        found.rows.push_back({.daemon = row[0].as<std::string>(),
                              .sequence = static_cast<uint64_t>(row[1].as<int64_t>()),
                              .recorded_ns = 0,
                              .kind = static_cast<FleetKind>(row[2].as<int>()),
                              .job = job,
                              .run = row[3].as<std::string>(),
                              .rank = row[4].as<int32_t>(),
                              .body = std::string(body.get(), body.size())});
      }
    });
    if (!done.ok()) return done;
    if (found.rows.empty())
      return Status(ErrorKind::kNotFound,
                    "no job of that id was reported: /api/v1/jobs lists them");
    if (found.rows.size() > kFleetRowsMax) {
      found.rows.pop_back();
      found.is_whole = false;
    }
    return found;
  }

 private:
  std::string where_;
  std::unique_ptr<pqxx::connection> connection_;
};

}  // namespace

std::unique_ptr<FleetReader> MakeFleetReader(const std::string& connection) {
  return std::make_unique<PostgresReader>(connection);
}

}  // namespace nanwatch
