// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "daemon/store/outbox_marker.h"
#include "daemon/store/rows.h"
#include "daemon/store/run_rows.h"

namespace nanwatch {
namespace {

constexpr size_t kFindingsBytes = size_t{256} << 10;    // of a row with findings, about
constexpr size_t kStateSitesBytes = size_t{512} << 10;  // of the sites in a state, about
constexpr size_t kSaidMax = 10'000;

// The same for equal messages: a map's order is not.
std::string Serialized(const google::protobuf::MessageLite& message) {
  std::string text;
  {
    google::protobuf::io::StringOutputStream stream(&text);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return text;
}

// As many as have room.
Status AddSites(const Database& database, int64_t run, size_t bytes_max, RunFacts& facts) {
  Result<Statement> read = database.Prepare("SELECT body FROM site WHERE run = ?1 ORDER BY id");
  if (!read.ok()) return read.status();
  read->Bind(1, run);
  size_t bytes = 0;
  for (Result<bool> row = read->Next();; row = read->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) return Status();
    bytes += read->Bytes(0).size();
    if (bytes > bytes_max) return Status();
    if (Status parsed = Parse(read->Bytes(0), *facts.add_sites()); !parsed.ok()) return parsed;
  }
}

// ---- what makes a conclusion the one that it is, and what only counts on in it

std::string RunOf(const Incident& incident) { return incident.origin().run(); }
std::string RunOf(const Warning& warning) { return warning.run(); }
int32_t RankOf(const Incident& incident) { return incident.origin().rank(); }
int32_t RankOf(const Warning& warning) { return warning.rank(); }

std::string SubjectOf(const Incident& incident) {
  const Finding& origin = incident.origin();
  if (origin.ticket() != 0) return fmt::format("{}/{}", origin.run(), origin.ticket());
  return fmt::format("{}/{}/{}/{}", origin.run(), origin.op(), origin.layer(), origin.step());
}

std::string SubjectOf(const Warning& warning) {
  return fmt::format("{}/{}/{}/{}/{}", warning.run(), warning.id(), warning.family(),
                     warning.param(), warning.step());
}

std::string EssenceOf(Incident incident) {
  incident.clear_count();
  incident.clear_last_step();
  return Serialized(incident);
}

std::string EssenceOf(Warning warning) {
  warning.clear_numbers();
  warning.clear_evidence();
  warning.clear_iteration();
  return Serialized(warning);
}

}  // namespace

// What changed while it was off is written in the same transaction: perhaps nothing is ever recorded
// on this host again.
Result<Outbox> Outbox::Open(const Database& database, const std::string& database_path,
                            uint64_t now_real_ns, OutboxOptions options, std::string& note) {
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  Result<OutboxTable> table =
      OutboxTable::Open(database, database_path, now_real_ns, std::move(options), note);
  if (!table.ok()) return table.status();
  Outbox outbox(database, *std::move(table));
  outbox.now_real_ns_ = now_real_ns;
  if (Status written = outbox.WriteStatesOfLost(now_real_ns); !written.ok()) return written;
  if (Status committed = transaction->Commit(); !committed.ok()) return committed;
  return outbox;
}

void Outbox::Forget() {
  table_.Forget();
  is_marked_ = false;
  written_.clear();
  said_.clear();
}

// ---- whatever happens to it, the facts are kept

template <typename Work>
Status Outbox::Guarded(const Work& work) {
  if (!damage_.empty()) return SwitchOff(Status());
  if (Status begun = database_->Execute("SAVEPOINT outbox"); !begun.ok()) return begun;
  Status done = work();
  // Of a full disk, a lock or too little memory the whole transaction fails, and is repeated.
  const bool is_damage = IsOutboxDamage(done);
  if (!done.ok() && !is_damage) return done;
  if (is_damage) {
    // SQLite may have ended the whole transaction: the caller repeats it, without the outbox.
    if (!database_->Execute("ROLLBACK TO outbox").ok()) {
      ReportDamage(done);
      return Status(ErrorKind::kBusy, done.message());
    }
  }
  if (Status ended = database_->Execute("RELEASE outbox"); !ended.ok()) return ended;
  return is_damage ? SwitchOff(done) : Status();
}

void Outbox::ReportDamage(const Status& why) {
  if (!damage_.empty()) return;
  damage_ = why.message();
  if (!table_.options().on_damage) return;
  table_.options().on_damage("the outbox in " + table_.state_dir() +
                             " is damaged, and the fleet hears nothing of this host until the "
                             "daemon is started again: " +
                             damage_);
}

// Its marker may be damaged, too: then the next that is opened meets that. For want of room, say,
// the whole transaction fails; SQLite may have ended it already.
Status Outbox::SwitchOff(const Status& why) {
  ReportDamage(why);
  if (is_marked_) return Status();
  if (Status begun = database_->Execute("SAVEPOINT marker"); !begun.ok()) return begun;
  Status written = WriteOutboxMarker(
      *database_, {.is_kept = false, .since_real_ns = now_real_ns_, .damage = damage_});
  if (!written.ok() && !IsOutboxDamage(written)) return written;
  if (!written.ok()) {
    if (!database_->Execute("ROLLBACK TO marker").ok())
      return Status(ErrorKind::kBusy, written.message());
  }
  is_marked_ = true;
  return database_->Execute("RELEASE marker");
}

Status Outbox::AddBatch(int64_t run, const RunBatch& batch, uint64_t now_real_ns) {
  return Guarded([&] { return WriteBatch(run, batch, now_real_ns); });
}

Status Outbox::AddState(int64_t run, uint64_t now_real_ns) {
  return Guarded([&] { return WriteState(run, now_real_ns); });
}

// ---- facts

Status Outbox::WriteBatch(int64_t run, const RunBatch& batch, uint64_t now_real_ns) {
  if (Status advanced = Advance(now_real_ns); !advanced.ok()) return advanced;
  const FleetRow row = {.daemon = table_.daemon(),
                        .recorded_ns = now_real_ns,
                        .kind = FleetKind::kFindings,
                        .job = JobOf(batch.run),
                        .run = batch.run_id,
                        .rank = batch.run.rank()};
  Written& written = written_[run];
  if (batch.has_findings()) {
    if (Status added = AddFindings(batch, row, written); !added.ok()) return added;
  }
  if (!batch.steps.empty() && now_real_ns - written.step_ns >= kOutboxEveryNs) {
    FleetRow step = row;
    step.kind = FleetKind::kStep;
    step.body = batch.steps.back().SerializeAsString();
    if (Status added = table_.Insert(std::move(step), ""); !added.ok()) return added;
    written.step_ns = now_real_ns;
  }
  uint64_t every_ns = batch.has_findings() ? kOutboxStormNs : kOutboxEveryNs;
  if (written.state_bytes > kOutboxLongState) every_ns *= kOutboxLongFactor;
  if (!batch.state.ended() && now_real_ns - written.state_ns < every_ns) return Status();
  return WriteState(run, now_real_ns);
}

// Whatever is added, the time goes on: what was sent is removed, and runs whose findings were let
// go of say so.
Status Outbox::Advance(uint64_t now_real_ns) {
  now_real_ns_ = now_real_ns;
  if (Status removed = table_.RemoveSent(now_real_ns); !removed.ok()) return removed;
  // The clock may be set back.
  if (now_real_ns >= lost_said_ns_ && now_real_ns - lost_said_ns_ < kOutboxEveryNs) return Status();
  lost_said_ns_ = now_real_ns;
  return WriteStatesOfLost(now_real_ns);
}

Status Outbox::WriteStatesOfLost(uint64_t now_real_ns) {
  for (const std::string& run : table_.TakeRunsThatLost()) {
    const Result<int64_t> key = KeyOfRun(*database_, run);
    if (key.status().kind() == ErrorKind::kNotFound) continue;
    if (!key.ok()) return key.status();
    if (Status added = WriteState(*key, now_real_ns); !added.ok()) return added;
  }
  return Status();
}

Status Outbox::AddFindings(const RunBatch& batch, FleetRow row, Written& written) {
  RunFacts facts;
  size_t bytes = 0;
  const auto flush = [&]() -> Status {
    if (bytes == 0) return Status();
    row.body = facts.SerializeAsString();
    facts.Clear();
    bytes = 0;
    return table_.Insert(row, "");
  };
  const auto add = [&](const auto& message, auto* field) -> Status {
    *field->Add() = message;
    bytes += message.ByteSizeLong();
    return bytes < kFindingsBytes ? Status() : flush();
  };
  // Sites that are known, and only counted on, come with the state.
  if (batch.sites_new > 0) {
    for (const Site& site : batch.sites) {
      if (Status added = add(site, facts.mutable_sites()); !added.ok()) return added;
    }
  }
  const uint64_t room =
      kOutboxRecordsPerRunMax - std::min(written.records, kOutboxRecordsPerRunMax);
  const uint64_t taken = std::min<uint64_t>(batch.records.size(), room);
  for (size_t i = 0; i < taken; ++i) {
    if (Status added = add(batch.records[i], facts.mutable_records()); !added.ok()) return added;
  }
  written.records += taken;
  for (const FirstReachFact& reach : batch.reach) {
    if (Status added = add(reach, facts.mutable_reach()); !added.ok()) return added;
  }
  if (taken < batch.records.size()) {
    Status counted = table_.CountLost(batch.run_id, batch.records.size() - taken);
    if (!counted.ok()) return counted;
  }
  return flush();
}

Status Outbox::WriteState(int64_t run, uint64_t now_real_ns) {
  // A run may have ended before the daemon began; the row is of now.
  const uint64_t written_ns = std::max(now_real_ns, now_real_ns_);
  if (Status removed = table_.RemoveSent(written_ns); !removed.ok()) return removed;
  Result<Statement> read = database_->Prepare(
      "SELECT id, job, rank, identity, state, records_thinned,"
      " (SELECT COUNT(*) FROM step WHERE step.run = run.key),"
      " (SELECT body FROM training WHERE training.run = run.key) FROM run WHERE key = ?1");
  if (!read.ok()) return read.status();
  const Result<bool> found = read->Bind(1, run).Next();
  if (!found.ok()) return found.status();
  if (!*found) return Status();
  RunFacts facts;
  if (Status parsed = Parse(read->Bytes(3), *facts.mutable_run()); !parsed.ok()) return parsed;
  if (Status parsed = Parse(read->Bytes(4), *facts.mutable_state()); !parsed.ok()) return parsed;
  facts.mutable_state()->set_records_thinned(read->Unsigned(5));
  facts.set_steps(read->Unsigned(6));
  if (!read->IsNull(7)) {
    if (Status parsed = Parse(read->Bytes(7), *facts.mutable_training()); !parsed.ok())
      return parsed;
  }
  const std::string id = read->Text(0);
  const Result<OutboxLedger::Findings> findings = table_.FindingsOf(id);
  if (!findings.ok()) return findings.status();
  facts.set_findings_sent(findings->rows);
  facts.mutable_state()->set_records_dropped(facts.state().records_dropped() +
                                             findings->records_lost);
  if (Status sites = AddSites(*database_, run, kStateSitesBytes, facts); !sites.ok()) return sites;
  const Result<std::string> launch = table_.LaunchOf(id, facts.run());
  if (!launch.ok()) return launch.status();
  FleetRow row = {.daemon = table_.daemon(),
                  .recorded_ns = written_ns,
                  .kind = FleetKind::kRun,
                  .job = read->Text(1),
                  .run = id,
                  .rank = static_cast<int32_t>(read->Integer(2)),
                  .launch = *launch,
                  .body = facts.SerializeAsString()};
  if (facts.state().ended()) {
    written_.erase(run);
  } else {
    Written& written = written_[run];
    written.state_ns = written_ns;
    written.state_bytes = row.body.size();
  }
  return table_.Insert(std::move(row), id);
}

// ---- conclusions

Result<bool> Outbox::HasEnded(const std::string& job) const {
  Result<Statement> read =
      database_->Prepare("SELECT COUNT(*) FROM run WHERE job = ?1 AND ended = 0");
  if (!read.ok()) return read.status();
  const Result<bool> row = read->BindText(1, job).Next();
  if (!row.ok()) return row.status();
  return read->Integer(0) == 0;
}

template <typename Conclusion>
Status Outbox::AddConclusions(FleetKind kind, const std::string& job,
                              const std::vector<Conclusion>& before,
                              const std::vector<Conclusion>& now) {
  const Result<bool> has_ended = HasEnded(job);
  if (!has_ended.ok()) return has_ended.status();
  if (said_.size() > kSaidMax) said_.clear();
  const auto key_of = [kind](const std::string& subject) {
    return std::string(NameOf(kind)) + "/" + subject;
  };
  // What another process of ours wrote.
  for (const Conclusion& conclusion : before) {
    const std::string key = key_of(SubjectOf(conclusion));
    if (said_.contains(key)) continue;
    said_[key] = {
        .body = Serialized(conclusion), .essence = EssenceOf(conclusion), .at_ns = now_real_ns_};
  }
  for (const Conclusion& conclusion : now) {
    if (RunOf(conclusion).empty()) continue;
    const std::string subject = SubjectOf(conclusion);
    Said& said = said_[key_of(subject)];
    std::string body = Serialized(conclusion);
    if (body == said.body) continue;
    std::string essence = EssenceOf(conclusion);
    const bool only_counts = essence == said.essence;
    if (only_counts && !*has_ended && now_real_ns_ - said.at_ns < said.every_ns) continue;
    const uint64_t every_ns =
        only_counts ? std::min(said.every_ns * 2, kOutboxCountsNs) : kOutboxEveryNs;
    said = {
        .body = body, .essence = std::move(essence), .at_ns = now_real_ns_, .every_ns = every_ns};
    if (Status added = table_.Insert({.daemon = table_.daemon(),
                                      .recorded_ns = now_real_ns_,
                                      .kind = kind,
                                      .job = job,
                                      .run = RunOf(conclusion),
                                      .rank = RankOf(conclusion),
                                      .body = std::move(body)},
                                     subject);
        !added.ok())
      return added;
  }
  return Status();
}

Status Outbox::AddIncidents(const std::string& job, const std::vector<Incident>& before,
                            const std::vector<Incident>& now) {
  return Guarded([&] { return AddConclusions(FleetKind::kIncident, job, before, now); });
}

Status Outbox::AddWarnings(const std::string& job, const std::vector<Warning>& before,
                           const std::vector<Warning>& now) {
  return Guarded([&] { return AddConclusions(FleetKind::kWarning, job, before, now); });
}

}  // namespace nanwatch
