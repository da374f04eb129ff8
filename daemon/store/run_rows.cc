// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/run_rows.h"

#include <algorithm>
#include <utility>

#include "daemon/store/rows.h"

namespace nanwatch {
namespace {

// Columns: id, job, identity, state, updated_real_ns, records_thinned.
Result<std::vector<RunRow>> QueryRuns(Statement query) {
  std::vector<RunRow> rows;
  for (Result<bool> more = query.Next();; more = query.Next()) {
    if (!more.ok()) return more.status();
    if (!*more) return rows;
    RunRow& row = rows.emplace_back();
    row.id = query.Text(0);
    row.job = query.Text(1);
    if (Status parsed = Parse(query.Bytes(2), row.run); !parsed.ok()) return parsed;
    if (Status parsed = Parse(query.Bytes(3), row.state); !parsed.ok()) return parsed;
    row.updated_real_ns = query.Unsigned(4);
    row.state.set_records_thinned(query.Unsigned(5));
  }
}

}  // namespace

Result<int64_t> KeyOfRun(const Database& database, const std::string& run_id) {
  Result<Statement> find = database.Prepare("SELECT key FROM run WHERE id = ?1");
  if (!find.ok()) return find.status();
  const Result<bool> row = find->BindText(1, run_id).Next();
  if (!row.ok()) return row.status();
  if (!*row) return Status(ErrorKind::kNotFound, "there is no run " + run_id);
  return find->Integer(0);
}

Result<RunRow> ReadRun(const Database& database, const std::string& run_id) {
  Result<Statement> query = database.Prepare(
      "SELECT id, job, identity, state, updated_real_ns, records_thinned FROM run WHERE id = ?1");
  if (!query.ok()) return query.status();
  query->BindText(1, run_id);
  Result<std::vector<RunRow>> rows = QueryRuns(*std::move(query));
  if (!rows.ok()) return rows.status();
  if (rows->empty()) return Status(ErrorKind::kNotFound, "there is no run " + run_id);
  return std::move(rows->front());
}

Result<std::vector<RunRow>> ReadRuns(const Database& database, const RunFilter& filter) {
  Result<Statement> query = database.Prepare(
      "SELECT id, job, identity, state, updated_real_ns, records_thinned FROM run"
      " WHERE (?1 IS NULL OR job = ?1) AND (?2 = 0 OR ended = 0)"
      " ORDER BY started_real_ns DESC, key DESC LIMIT ?3");
  if (!query.ok()) return query.status();
  query->BindNull(1).Bind(2, filter.live_only ? 1 : 0).Bind(3, filter.count_max);
  if (filter.job) query->BindText(1, *filter.job);
  return QueryRuns(*std::move(query));
}

Result<std::string> ResolveRun(const Database& database, const std::string& prefix) {
  const bool is_hex =
      !prefix.empty() && prefix.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_hex) {
    return Status(ErrorKind::kInvalid,
                  "'" + prefix + "' is not a run id: run ids consist of 0-9 and a-f");
  }
  Result<Statement> query =
      database.Prepare("SELECT id FROM run WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id LIMIT 6");
  if (!query.ok()) return query.status();
  query->BindText(1, prefix);
  std::vector<std::string> found;
  for (Result<bool> row = query->Next();; row = query->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) break;
    found.push_back(query->Text(0));
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return Status(ErrorKind::kNotFound,
                  "no run id begins with '" + prefix + "': 'nanwatch ps --all' lists the runs");
  }
  std::string message = "'" + prefix + "' matches several runs:";
  for (size_t i = 0; i < std::min<size_t>(found.size(), 5); ++i) message += " " + found[i];
  if (found.size() > 5) message += " ...";
  return Status(ErrorKind::kAmbiguous, message);
}

Result<std::vector<std::string>> RunsOfJob(const Database& database, const std::string& job) {
  Result<Statement> query =
      database.Prepare("SELECT id FROM run WHERE job = ?1 ORDER BY started_real_ns, key");
  if (!query.ok()) return query.status();
  query->BindText(1, job);
  std::vector<std::string> ids;
  for (Result<bool> row = query->Next();; row = query->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) return ids;
    ids.push_back(query->Text(0));
  }
}

}  // namespace nanwatch
