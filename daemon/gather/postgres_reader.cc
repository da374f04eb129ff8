// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <utility>

#include "daemon/gather/fleet_hosts.h"
#include "daemon/gather/fleet_reader.h"
#include "daemon/gather/postgres_call.h"

namespace nanwatch {
namespace {

constexpr char kSetUp[] = "SET statement_timeout = '20s'";

constexpr char kJobs[] =
    "SELECT job, COUNT(DISTINCT run), COUNT(DISTINCT host), MAX(world_size),"
    " SUM(CASE WHEN ended THEN 1 ELSE 0 END),"
    " (SELECT COUNT(*) FROM nanwatch.fact WHERE fact.job = run.job AND kind = 4"
    " AND fact.tenant = $1),"
    " MAX(received_at) AT TIME ZONE 'UTC', COUNT(DISTINCT (launch, attempt))"
    " FROM nanwatch.run WHERE tenant = $1 GROUP BY job ORDER BY MAX(received_at) DESC LIMIT $2";

constexpr char kRuns[] =
    "SELECT daemon, run, launch, sequence, recorded_ns, heard_ago, body, all_runs FROM ("
    " SELECT daemon, run, launch, sequence, recorded_ns, body, COUNT(*) OVER () AS all_runs,"
    "  CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP - received_at) AS bigint) AS heard_ago,"
    "  SUM(LENGTH(body)) OVER (ORDER BY received_at DESC, daemon, run, sequence) AS bytes"
    "  FROM nanwatch.run WHERE job = $1 AND tenant = $4) AS runs"
    " WHERE bytes <= $2 ORDER BY heard_ago, daemon, run, sequence LIMIT $3";

// `bytes` counts in the order in which rows are taken; `all_bytes` tells whether some are left out.
constexpr char kFindings[] =
    "SELECT run, body, all_bytes, all_rows FROM ("
    " SELECT run, body, place, sequence,"
    "  SUM(LENGTH(body)) OVER (ORDER BY place, sequence, run) AS bytes,"
    "  SUM(LENGTH(body)) OVER () AS all_bytes, COUNT(*) OVER () AS all_rows FROM ("
    "  SELECT run, body, sequence,"
    "   ROW_NUMBER() OVER (PARTITION BY run ORDER BY sequence, daemon) AS place"
    "   FROM nanwatch.fact WHERE job = $1 AND kind = 2 AND run = ANY (CAST($2 AS text[]))"
    "    AND tenant = $5"
    "  ) AS numbered) AS counted"
    " WHERE bytes <= $3 ORDER BY place, sequence, run LIMIT $4";

constexpr char kListedRuns[] =
    "SELECT daemon, run, sequence, recorded_ns,"
    " CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP - received_at) AS bigint), body, job"
    " FROM nanwatch.run WHERE tenant = $1 ORDER BY received_at DESC, daemon, run, sequence LIMIT "
    "$2";

constexpr char kSteps[] =
    "SELECT run, body FROM ("
    " SELECT run, body, sequence FROM nanwatch.fact WHERE job = $1 AND kind = 3"
    "  AND run = ANY (CAST($2 AS text[])) AND tenant = $3 ORDER BY recorded_ns DESC LIMIT $4"
    " ) AS newest ORDER BY run, sequence";

constexpr char kIncidents[] =
    "SELECT of_run.host, of_run.launch, of_run.attempt, incident.job, incident.body,"
    " incident.daemon, incident.sequence FROM ("
    " SELECT daemon, sequence, job, run, body FROM nanwatch.fact WHERE kind = 4 AND tenant = $2"
    " ORDER BY received_at DESC LIMIT $1) AS incident"
    " JOIN nanwatch.run AS of_run ON of_run.daemon = incident.daemon AND of_run.run = incident.run";

constexpr char kLosses[] =
    "SELECT body FROM nanwatch.fact AS loss WHERE kind = 6 AND job = ''"
    " AND daemon = ANY (CAST($1 AS uuid[])) AND NOT EXISTS (SELECT 1 FROM nanwatch.fact AS newer"
    "  WHERE newer.kind = 6 AND newer.job = '' AND newer.daemon = loss.daemon"
    "  AND newer.sequence > loss.sequence)";

// As PostgreSQL writes an array. They are hexadecimal digits and dashes.
std::string ArrayOf(const std::set<std::string>& names) {
  std::string text = "{";
  for (const std::string& name : names) text += (text.size() > 1 ? "," : "") + name;
  return text + "}";
}

std::string IdsOf(const std::vector<FleetRun>& runs) {
  std::set<std::string> ids;
  for (const FleetRun& run : runs) ids.insert(run.run);
  return ArrayOf(ids);
}

std::string BytesOf(const pqxx::field& field) {
  const pqxx::binarystring bytes(field);
  return std::string(bytes.get(), bytes.size());
}

class PostgresReader final : public FleetReader {
 public:
  explicit PostgresReader(std::string where) : where_(std::move(where)) {}

  Result<std::vector<FleetJob>> Jobs(const std::string& tenant) override {
    std::vector<FleetJob> jobs;
    const Status done = Read([&](pqxx::read_transaction& transaction) {
      for (const auto& row : transaction.exec_params(kJobs, tenant, kFleetJobsMax)) {
        jobs.push_back({.job = row[0].as<std::string>(),
                        .launches = row[7].as<int64_t>(),
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

  Result<FleetRuns> RunsOfJob(const std::string& tenant, const std::string& job) override {
    std::map<std::string, FleetRun> runs;  // two daemons may report one: the newest counts
    FleetRuns found;
    const Status done = Read([&](pqxx::read_transaction& transaction) {
      const pqxx::result rows =
          transaction.exec_params(kRuns, job, kFleetBytesMax, kFleetRunsMax, tenant);
      if (!rows.empty())
        found.left_out = rows[0][7].as<uint64_t>() - static_cast<uint64_t>(rows.size());
      for (const auto& row : rows) {
        FleetRun run = {.daemon = row[0].as<std::string>(),
                        .run = row[1].as<std::string>(),
                        .launch = row[2].as<std::string>(),
                        .sequence = static_cast<uint64_t>(row[3].as<int64_t>()),
                        .recorded_ns = static_cast<uint64_t>(row[4].as<int64_t>()),
                        .heard_ago_s = row[5].as<int64_t>()};
        FleetRun& known = runs[run.run];
        if (known.sequence > run.sequence || !run.facts.ParseFromString(BytesOf(row[6]))) continue;
        known = std::move(run);
      }
    });
    if (!done.ok()) return done;
    for (auto& [id, run] : runs) {
      if (!run.run.empty()) found.runs.push_back(std::move(run));
    }
    if (found.runs.empty())
      return Status(ErrorKind::kNotFound,
                    "no job of that id was reported: /api/v1/jobs lists them");
    return found;
  }

  Result<FleetFindings> FindingsOf(const std::string& tenant, const std::string& job,
                                   const std::vector<FleetRun>& runs) override {
    FleetFindings findings;
    const Status done = Read([&](pqxx::read_transaction& transaction) {
      int64_t bytes = 0;
      const pqxx::result rows = transaction.exec_params(kFindings, job, IdsOf(runs), kFleetBytesMax,
                                                        kFleetRowsMax, tenant);
      for (const auto& row : rows) {
        std::string body = BytesOf(row[1]);
        bytes += static_cast<int64_t>(body.size());
        findings.bodies[row[0].as<std::string>()].push_back(std::move(body));
      }
      if (!rows.empty()) findings.is_whole = rows[0][2].as<int64_t>() == bytes;
    });
    if (!done.ok()) return done;
    return findings;
  }

  Result<std::vector<ListedRun>> Runs(const std::string& tenant) override {
    std::vector<ListedRun> runs;
    std::map<std::string, size_t> places;  // two daemons may report one: the newest counts
    const Status done = Read([&](pqxx::read_transaction& transaction) {
      for (const auto& row : transaction.exec_params(kListedRuns, tenant, kFleetJobsMax)) {
        ListedRun listed = {.job = row[6].as<std::string>(),
                            .run = {.daemon = row[0].as<std::string>(),
                                    .run = row[1].as<std::string>(),
                                    .sequence = static_cast<uint64_t>(row[2].as<int64_t>()),
                                    .recorded_ns = static_cast<uint64_t>(row[3].as<int64_t>()),
                                    .heard_ago_s = row[4].as<int64_t>()}};
        if (!listed.run.facts.ParseFromString(BytesOf(row[5]))) continue;
        const auto [place, is_new] = places.try_emplace(listed.run.run, runs.size());
        if (is_new) {
          runs.push_back(std::move(listed));
        } else if (runs[place->second].run.sequence < listed.run.sequence) {
          runs[place->second] = std::move(listed);
        }
      }
    });
    if (!done.ok()) return done;
    return runs;
  }

  Result<FleetSteps> StepsOf(const std::string& tenant, const std::string& job,
                             const std::vector<FleetRun>& runs) override {
    FleetSteps steps;
    const Status done = Read([&](pqxx::read_transaction& transaction) {
      for (const auto& row :
           transaction.exec_params(kSteps, job, IdsOf(runs), tenant, kFleetStepsMax)) {
        StepSummary step;
        if (step.ParseFromString(BytesOf(row[1])))
          steps[row[0].as<std::string>()].push_back(std::move(step));
      }
    });
    if (!done.ok()) return done;
    return steps;
  }

  Result<FleetIncidents> Incidents(const std::string& tenant, size_t count_max) override {
    FleetIncidents found;
    const Status done = Read([&](pqxx::read_transaction& transaction) {
      const pqxx::result rows = transaction.exec_params(kIncidents, count_max + 1, tenant);
      found.is_whole = static_cast<size_t>(rows.size()) <= count_max;
      for (const auto& row : rows) {
        HostIncident one = {.daemon = row[5].as<std::string>(),
                            .sequence = static_cast<uint64_t>(row[6].as<int64_t>()),
                            .host = row[0].as<std::string>(),
                            .job = row[3].as<std::string>(),
                            .launch = row[3].as<std::string>() + '\n' + row[1].as<std::string>() +
                                      '\n' + row[2].as<std::string>()};
        if (one.incident.ParseFromString(BytesOf(row[4])))
          found.incidents.push_back(std::move(one));
      }
    });
    if (!done.ok()) return done;
    return found;
  }

  Result<OutboxLoss> LossOf(const std::vector<FleetRun>& runs) override {
    OutboxLoss all;
    std::set<std::string> daemons;
    for (const FleetRun& run : runs) daemons.insert(run.daemon);
    const Status done = Read([&](pqxx::read_transaction& transaction) {
      for (const auto& row : transaction.exec_params(kLosses, ArrayOf(daemons))) {
        OutboxLoss loss;
        if (!loss.ParseFromString(BytesOf(row[0]))) continue;
        all.set_steps(all.steps() + loss.steps());
        all.set_findings(all.findings() + loss.findings());
        all.set_runs(all.runs() + loss.runs());
        all.set_conclusions(all.conclusions() + loss.conclusions());
        all.set_outboxes(all.outboxes() + loss.outboxes());
        all.set_refused(all.refused() + loss.refused());
      }
    });
    if (!done.ok()) return done;
    return all;
  }

 private:
  template <typename Work>
  Status Read(const Work& work) {
    return Do(connection_, where_, [&](pqxx::connection& connection, bool is_new) {
      if (is_new) pqxx::nontransaction(connection).exec(kSetUp);
      pqxx::read_transaction transaction(connection);
      work(transaction);
    });
  }

  std::string where_;
  std::unique_ptr<pqxx::connection> connection_;
};

}  // namespace

std::unique_ptr<FleetReader> MakeFleetReader(const std::string& connection) {
  return std::make_unique<PostgresReader>(connection);
}

}  // namespace nanwatch
