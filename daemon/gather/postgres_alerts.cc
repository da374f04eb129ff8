// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "daemon/gather/alert_book.h"
#include "daemon/gather/postgres_call.h"

namespace nanwatch {
namespace {

constexpr char kSetUp[] = "SET statement_timeout = '20s'";

constexpr char kAlarming[] =
    "SELECT tenant, job, COUNT(*) FROM nanwatch.fact WHERE kind = 4"
    " AND received_at > CURRENT_TIMESTAMP - CAST($1 AS integer) * INTERVAL '1 second'"
    " GROUP BY tenant, job";

constexpr char kBegin[] =
    "INSERT INTO nanwatch.alert AS known (tenant, job, launch, summary, description)"
    " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant, job, launch) DO UPDATE"
    " SET summary = EXCLUDED.summary, description = EXCLUDED.description"
    " WHERE known.ended_at IS NULL";

constexpr char kEnd[] =
    "UPDATE nanwatch.alert SET ended_at = CURRENT_TIMESTAMP"
    " WHERE tenant = $1 AND job = $2 AND launch = $3 AND ended_at IS NULL";

constexpr char kSettle[] =
    "UPDATE nanwatch.alert SET settled = TRUE"
    " WHERE tenant = $1 AND job = $2 AND launch = $3 AND ended_at IS NOT NULL";

constexpr char kOpen[] =
    "SELECT tenant, job, launch, summary, description,"
    " CAST(EXTRACT(EPOCH FROM begun_at) * 1000000000 AS bigint),"
    " CAST(COALESCE(EXTRACT(EPOCH FROM ended_at), 0) * 1000000000 AS bigint)"
    " FROM nanwatch.alert WHERE NOT settled ORDER BY begun_at";

class PostgresAlertBook final : public AlertBook {
 public:
  explicit PostgresAlertBook(std::string where) : where_(std::move(where)) {}

  Result<std::vector<AlarmingJob>> AlarmingJobs(int64_t within_s) override {
    std::vector<AlarmingJob> jobs;
    const Status done = InTransaction([&](pqxx::work& transaction) {
      for (const auto& row : transaction.exec_params(kAlarming, within_s))
        jobs.push_back({row[0].as<std::string>(), row[1].as<std::string>(), row[2].as<int64_t>()});
    });
    if (!done.ok()) return done;
    return jobs;
  }

  Status Begin(const FleetAlert& alert) override {
    return InTransaction([&](pqxx::work& transaction) {
      transaction.exec_params(kBegin, alert.tenant, alert.job, alert.launch, alert.summary,
                              alert.description);
    });
  }
  Status End(const FleetAlert& alert) override { return Mark(kEnd, alert); }
  Status Settle(const FleetAlert& alert) override { return Mark(kSettle, alert); }

  Result<std::vector<FleetAlert>> Open() override {
    std::vector<FleetAlert> open;
    const Status done = InTransaction([&](pqxx::work& transaction) {
      for (const auto& row : transaction.exec(kOpen))
        open.push_back({.tenant = row[0].as<std::string>(),
                        .job = row[1].as<std::string>(),
                        .launch = row[2].as<std::string>(),
                        .summary = row[3].as<std::string>(),
                        .description = row[4].as<std::string>(),
                        .begun_ns = static_cast<uint64_t>(row[5].as<int64_t>()),
                        .ended_ns = static_cast<uint64_t>(row[6].as<int64_t>())});
    });
    if (!done.ok()) return done;
    return open;
  }

 private:
  Status Mark(const char* statement, const FleetAlert& alert) {
    return InTransaction([&](pqxx::work& transaction) {
      transaction.exec_params(statement, alert.tenant, alert.job, alert.launch);
    });
  }
  template <typename Work>
  Status InTransaction(const Work& work) {
    return Do(connection_, where_, [&](pqxx::connection& connection, bool is_new) {
      if (is_new) pqxx::nontransaction(connection).exec(kSetUp);
      pqxx::work transaction(connection);
      work(transaction);
      transaction.commit();
    });
  }

  std::string where_;
  std::unique_ptr<pqxx::connection> connection_;
};

}  // namespace

std::unique_ptr<AlertBook> MakeAlertBook(const std::string& connection) {
  return std::make_unique<PostgresAlertBook>(connection);
}

}  // namespace nanwatch
