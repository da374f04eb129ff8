// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/run_facts.h"

#include "daemon/store/rows.h"
#include "daemon/store/run_rows.h"

namespace nanwatch {

Result<RunFacts> ReadFacts(const Database& database, const std::string& run_id) {
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
  read = ParseRows<Record>(database, "SELECT body FROM record WHERE run = ?1 ORDER BY ticket", *key,
                           [&]() -> Record& { return *facts.add_records(); });
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
