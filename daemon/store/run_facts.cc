// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/run_facts.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "daemon/store/rows.h"
#include "daemon/store/run_rows.h"
#include "daemon/store/store.h"

namespace nanwatch {

namespace {

Status ReadRecords(const Database& database, int64_t run, uint64_t records_max, RunFacts& facts) {
  const Result<int64_t> stored =
      CountRows(database, "SELECT COUNT(*) FROM record WHERE run = ?1", run);
  if (!stored.ok()) return stored.status();
  const auto count = static_cast<uint64_t>(*stored);
  const uint64_t first = std::min(count, records_max) - (count > records_max ? records_max / 5 : 0);
  const uint64_t newest = std::min(count, records_max) - first;
  Result<Statement> read = database.Prepare(
      "SELECT body FROM (SELECT ticket, body FROM record WHERE run = ?1 ORDER BY ticket LIMIT ?2)"
      " UNION ALL SELECT body FROM (SELECT ticket, body FROM"
      " (SELECT ticket, body FROM record WHERE run = ?1 ORDER BY ticket DESC LIMIT ?3)"
      " ORDER BY ticket)");
  if (!read.ok()) return read.status();
  read->Bind(1, run).BindUnsigned(2, first).BindUnsigned(3, newest);
  while (true) {
    const Result<bool> row = read->Next();
    if (!row.ok()) return row.status();
    if (!*row) break;
    if (Status parsed = Parse(read->Bytes(0), *facts.add_records()); !parsed.ok()) return parsed;
  }
  facts.mutable_state()->set_records_thinned(facts.state().records_thinned() + count - first -
                                             newest);
  return Status();
}

}  // namespace

Result<uint64_t> RecordsPerRun(const Database& database, const std::string& job) {
  Result<Statement> query = database.Prepare(
      "SELECT (SELECT COUNT(*) FROM record WHERE record.run = run.key) AS records FROM run"
      " WHERE job = ?1 ORDER BY records");
  if (!query.ok()) return query.status();
  query->BindText(1, job);
  std::vector<uint64_t> counts;
  while (true) {
    const Result<bool> row = query->Next();
    if (!row.ok()) return row.status();
    if (!*row) break;
    counts.push_back(query->Unsigned(0));
  }
  // From the smallest on, each takes what it has or an equal share of what is left.
  uint64_t left = kRecordsPerJobMax;
  for (size_t i = 0; i < counts.size(); ++i) {
    const uint64_t share = left / (counts.size() - i);
    if (counts[i] > share) return std::max(kRecordsPerRunJudgedLeast, share);
    left -= counts[i];
  }
  return kRecordsPerJobMax;
}

Result<RunFacts> ReadFacts(const Database& database, const std::string& run_id,
                           uint64_t records_max) {
  const Result<int64_t> key = KeyOfRun(database, run_id);
  if (!key.ok()) return key.status();
  RunFacts facts;
  Result<Statement> find =
      database.Prepare("SELECT identity, state, records_thinned FROM run WHERE key = ?1");
  if (!find.ok()) return find.status();
  const Result<bool> row = find->Bind(1, *key).Next();
  if (!row.ok()) return row.status();
  if (Status parsed = Parse(find->Bytes(0), *facts.mutable_run()); !parsed.ok()) return parsed;
  if (Status parsed = Parse(find->Bytes(1), *facts.mutable_state()); !parsed.ok()) return parsed;
  facts.mutable_state()->set_records_thinned(find->Unsigned(2));
  Status read = ParseRows<Site>(database, "SELECT body FROM site WHERE run = ?1 ORDER BY id", *key,
                                [&]() -> Site& { return *facts.add_sites(); });
  if (!read.ok()) return read;
  read = ReadRecords(database, *key, records_max, facts);
  if (!read.ok()) return read;
  read = ParseRows<FirstReachFact>(database, "SELECT body FROM reach WHERE run = ?1 ORDER BY reach",
                                   *key, [&]() -> FirstReachFact& { return *facts.add_reach(); });
  if (!read.ok()) return read;
  read = ReadTraining(database, *key, *facts.mutable_training());
  if (!read.ok()) return read;
  read = ParseRows<StatsSnapshot>(
      database, "SELECT body FROM stats WHERE run = ?1 ORDER BY number DESC LIMIT 1", *key,
      [&]() -> StatsSnapshot& { return *facts.mutable_stats_stored(); });
  if (!read.ok()) return read;
  const Result<int64_t> steps =
      CountRows(database, "SELECT COUNT(*) FROM step WHERE run = ?1", *key);
  if (!steps.ok()) return steps.status();
  facts.set_steps(static_cast<uint64_t>(*steps));
  return facts;
}

Status ReadTraining(const Database& database, int64_t run, TrainingHistory& training) {
  return ParseRows<TrainingHistory>(database, "SELECT body FROM training WHERE run = ?1", run,
                                    [&]() -> TrainingHistory& { return training; });
}

}  // namespace nanwatch
