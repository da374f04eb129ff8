// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <utility>

#include "daemon/base/directories.h"
#include "daemon/store/rows.h"
#include "fleet.pb.h"

namespace nanwatch {
namespace {

constexpr uint64_t kRemoveEveryNs = 1'000'000'000;
constexpr int64_t kRowBytes = 200;                    // what a row takes besides its body, about
constexpr size_t kFindingsBytes = size_t{256} << 10;  // of a row with findings, about
constexpr int kLetGoAtOnce = 64;

// Apart from the schema's version (schema.h): a database without an outbox does not know it.
constexpr char kTables[] =
    "CREATE TABLE IF NOT EXISTS outbox ("
    " sequence INTEGER PRIMARY KEY, lane INTEGER NOT NULL, daemon TEXT NOT NULL,"
    " recorded_ns INTEGER NOT NULL, kind INTEGER NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL,"
    " rank INTEGER NOT NULL, body BLOB NOT NULL);"
    "CREATE INDEX IF NOT EXISTS outbox_by_lane ON outbox (lane, sequence);"
    // States of runs that wait are replaced.
    "CREATE INDEX IF NOT EXISTS outbox_states ON outbox (run, kind) WHERE lane = 1;"
    "CREATE TABLE IF NOT EXISTS outbox_self (version INTEGER NOT NULL, daemon TEXT NOT NULL,"
    " place TEXT NOT NULL, last_sequence INTEGER NOT NULL, lost_conclusions INTEGER NOT NULL,"
    " lost_runs INTEGER NOT NULL, lost_findings INTEGER NOT NULL, lost_steps INTEGER NOT NULL)";

// Of version 4 of RFC 9562.
std::string NewUuid() {
  unsigned char bytes[16] = {};
  (void)!getrandom(bytes, sizeof bytes, 0);
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  std::string text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

// What a copy of a database does not share with its original.
std::string PlaceOf(const std::string& database_path) {
  struct stat info {};
  const bool is_file = stat(database_path.c_str(), &info) == 0;
  return HostName() + ":" + std::to_string(is_file ? info.st_ino : 0);
}

const char* LostColumn(FleetLane lane) {
  switch (lane) {
    case FleetLane::kConclusions:
      return "lost_conclusions";
    case FleetLane::kRuns:
      return "lost_runs";
    case FleetLane::kFindings:
      return "lost_findings";
    case FleetLane::kSteps:
      break;
  }
  return "lost_steps";
}

int64_t BytesOf(const FleetRow& row) { return kRowBytes + static_cast<int64_t>(row.body.size()); }

template <typename Message>
std::vector<std::string> NewOnes(const std::vector<Message>& before,
                                 const std::vector<Message>& now) {
  std::set<std::string> known;
  for (const Message& message : before) known.insert(message.SerializeAsString());
  std::vector<std::string> bodies;
  for (const Message& message : now) {
    std::string body = message.SerializeAsString();
    if (!known.contains(body)) bodies.push_back(std::move(body));
  }
  return bodies;
}

}  // namespace

// ---- opening

Result<Outbox> Outbox::Open(const Database& database, const std::string& database_path,
                            uint64_t now_real_ns, uint64_t bytes_max, std::string& note) {
  Outbox outbox(database);
  outbox.bytes_max_ = bytes_max;
  outbox.now_real_ns_ = now_real_ns;
  outbox.state_dir_ = database_path.substr(0, database_path.find_last_of('/'));
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  if (Status made = database.Execute(kTables); !made.ok()) return made;
  if (Status taken = outbox.TakeIdentity(database_path, now_real_ns, note); !taken.ok())
    return taken;
  if (Status committed = transaction->Commit(); !committed.ok()) return committed;
  return outbox;
}

Status Outbox::TakeIdentity(const std::string& database_path, uint64_t now_real_ns,
                            std::string& note) {
  const std::string place = PlaceOf(database_path);
  Result<Statement> read =
      database_->Prepare("SELECT daemon, place, last_sequence FROM outbox_self");
  if (!read.ok()) return read.status();
  const Result<bool> row = read->Next();
  if (!row.ok()) return row.status();
  const SentUpTo sent = ReadSent(state_dir_);
  next_sequence_ = std::max(now_real_ns / 1000, *std::max_element(sent.begin(), sent.end()) + 1);
  if (*row) {
    daemon_ = read->Text(0);
    next_sequence_ = std::max(next_sequence_, read->Unsigned(2) + 1);
    if (read->Text(1) == place) return Status();
    note = "the database in " + state_dir_ +
           " is a copy of another daemon's: to the fleet this daemon is another one from now on";
  }
  daemon_ = NewUuid();
  const char* sql = *row ? "UPDATE outbox_self SET daemon = ?1, place = ?2"
                         : "INSERT INTO outbox_self VALUES (1, ?1, ?2, 0, 0, 0, 0, 0)";
  Result<Statement> write = database_->Prepare(sql);
  if (!write.ok()) return write.status();
  return write->BindText(1, daemon_).BindText(2, place).Run();
}

Status Outbox::CountRows() {
  if (counted_) return Status();
  const Result<int64_t> bytes =
      database_->Ask("SELECT COALESCE(SUM(LENGTH(body)), 0) + 200 * COUNT(*) FROM outbox");
  if (!bytes.ok()) return bytes.status();
  bytes_ = static_cast<uint64_t>(*bytes);
  written_.clear();
  removed_ = {};
  counted_ = true;
  return Status();
}

// ---- adding

Status Outbox::AddBatch(int64_t run, const RunBatch& batch, uint64_t now_real_ns) {
  if (Status removed = RemoveSent(now_real_ns); !removed.ok()) return removed;
  const FleetRow row = {.daemon = daemon_,
                        .recorded_ns = now_real_ns,
                        .kind = FleetKind::kFindings,
                        .job = JobOf(batch.run),
                        .run = batch.run_id,
                        .rank = batch.run.rank()};
  Written& written = written_[run];
  if (batch.has_findings()) {
    if (Status added = AddFindings(batch, row); !added.ok()) return added;
  } else if (!batch.sites.empty()) {
    written.sites_counted_on = true;
  }
  if (!batch.steps.empty() && now_real_ns - written.step_ns >= kOutboxEveryNs) {
    FleetRow step = row;
    step.kind = FleetKind::kStep;
    step.body = batch.steps.back().SerializeAsString();
    if (Status added = Insert(std::move(step)); !added.ok()) return added;
    written.step_ns = now_real_ns;
  }
  const bool has_news = batch.has_findings() || batch.state.ended();
  if (!has_news && now_real_ns - written.state_ns < kOutboxEveryNs) return Status();
  if (std::exchange(written.sites_counted_on, false)) {
    RunBatch all_sites;
    Status read = ParseRows<Site>(*database_, "SELECT body FROM site WHERE run = ?1", run,
                                  [&]() -> Site& { return all_sites.sites.emplace_back(); });
    if (!read.ok()) return read;
    if (Status added = AddFindings(all_sites, row); !added.ok()) return added;
  }
  if (Status added = AddState(run, now_real_ns); !added.ok()) return added;
  if (batch.state.ended()) written_.erase(run);
  return Status();
}

Status Outbox::AddFindings(const RunBatch& batch, FleetRow row) {
  RunFacts facts;
  size_t bytes = 0;
  const auto flush = [&]() -> Status {
    if (bytes == 0) return Status();
    row.body = facts.SerializeAsString();
    facts.Clear();
    bytes = 0;
    return Insert(row);
  };
  const auto add = [&](const auto& message, auto* field) -> Status {
    *field->Add() = message;
    bytes += message.ByteSizeLong();
    return bytes < kFindingsBytes ? Status() : flush();
  };
  for (const Site& site : batch.sites) {
    if (Status added = add(site, facts.mutable_sites()); !added.ok()) return added;
  }
  for (const Record& record : batch.records) {
    if (Status added = add(record, facts.mutable_records()); !added.ok()) return added;
  }
  for (const FirstReachFact& reach : batch.reach) {
    if (Status added = add(reach, facts.mutable_reach()); !added.ok()) return added;
  }
  return flush();
}

Status Outbox::AddState(int64_t run, uint64_t when_real_ns) {
  // A run may have ended before the daemon began; the row is of now.
  const uint64_t now_real_ns = std::max(when_real_ns, now_real_ns_);
  if (Status removed = RemoveSent(now_real_ns); !removed.ok()) return removed;
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
  written_[run].state_ns = now_real_ns;
  return Insert({.daemon = daemon_,
                 .recorded_ns = now_real_ns,
                 .kind = FleetKind::kRun,
                 .job = read->Text(1),
                 .run = read->Text(0),
                 .rank = static_cast<int32_t>(read->Integer(2)),
                 .body = facts.SerializeAsString()});
}

Status Outbox::AddIncidents(const std::string& job, const std::vector<Incident>& before,
                            const std::vector<Incident>& now) {
  for (std::string& body : NewOnes(before, now)) {
    Incident incident;
    if (!incident.ParseFromString(body) || incident.origin().run().empty()) continue;
    if (Status added = Insert({.daemon = daemon_,
                               .recorded_ns = now_real_ns_,
                               .kind = FleetKind::kIncident,
                               .job = job,
                               .run = incident.origin().run(),
                               .rank = incident.origin().rank(),
                               .body = std::move(body)});
        !added.ok())
      return added;
  }
  return Status();
}

Status Outbox::AddWarnings(const std::string& job, const std::vector<Warning>& before,
                           const std::vector<Warning>& now) {
  for (std::string& body : NewOnes(before, now)) {
    Warning warning;
    if (!warning.ParseFromString(body) || warning.run().empty()) continue;
    if (Status added = Insert({.daemon = daemon_,
                               .recorded_ns = now_real_ns_,
                               .kind = FleetKind::kWarning,
                               .job = job,
                               .run = warning.run(),
                               .rank = warning.rank(),
                               .body = std::move(body)});
        !added.ok())
      return added;
  }
  return Status();
}

// A state that waits is replaced by a newer one.
Status Outbox::Insert(FleetRow row) {
  if (Status counted = CountRows(); !counted.ok()) return counted;
  row.sequence = next_sequence_++;
  if (LaneOf(row.kind) == FleetLane::kRuns) {
    Result<Statement> old = database_->Prepare(
        "DELETE FROM outbox WHERE lane = 1 AND run = ?1 AND kind = ?2 AND daemon = ?3"
        " RETURNING LENGTH(body)");
    if (!old.ok()) return old.status();
    old->BindText(1, row.run).Bind(2, static_cast<int>(row.kind)).BindText(3, row.daemon);
    Result<bool> removed = old->Next();
    for (; removed.ok() && *removed; removed = old->Next())
      bytes_ -= static_cast<uint64_t>(old->Integer(0) + kRowBytes);
    if (!removed.ok()) return removed.status();
  }
  Result<Statement> write =
      database_->Prepare("INSERT INTO outbox VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  if (!write.ok()) return write.status();
  write->BindUnsigned(1, row.sequence).Bind(2, static_cast<int>(LaneOf(row.kind)));
  write->BindText(3, row.daemon).BindUnsigned(4, row.recorded_ns);
  write->Bind(5, static_cast<int>(row.kind)).BindText(6, row.job).BindText(7, row.run);
  if (Status written = write->Bind(8, row.rank).BindBlob(9, row.body).Run(); !written.ok())
    return written;
  Result<Statement> last = database_->Prepare("UPDATE outbox_self SET last_sequence = ?1");
  if (!last.ok()) return last.status();
  if (Status set = last->BindUnsigned(1, row.sequence).Run(); !set.ok()) return set;
  bytes_ += static_cast<uint64_t>(BytesOf(row));
  return MakeRoom();
}

// ---- removing

// In the transaction of what is added: nothing is written for this alone.
Status Outbox::RemoveSent(uint64_t now_real_ns) {
  now_real_ns_ = now_real_ns;
  if (Status counted = CountRows(); !counted.ok()) return counted;
  // The clock may be set back.
  if (now_real_ns >= removed_at_ns_ && now_real_ns - removed_at_ns_ < kRemoveEveryNs)
    return Status();
  removed_at_ns_ = now_real_ns;
  const SentUpTo sent = ReadSent(state_dir_);
  for (size_t lane = 0; lane < sent.size(); ++lane) {
    if (sent[lane] <= removed_[lane]) continue;
    Result<Statement> remove = database_->Prepare(
        "DELETE FROM outbox WHERE lane = ?1 AND sequence <= ?2 RETURNING LENGTH(body)");
    if (!remove.ok()) return remove.status();
    remove->Bind(1, static_cast<int64_t>(lane)).BindUnsigned(2, sent[lane]);
    Result<bool> removed = remove->Next();
    for (; removed.ok() && *removed; removed = remove->Next())
      bytes_ -= static_cast<uint64_t>(remove->Integer(0) + kRowBytes);
    if (!removed.ok()) return removed.status();
    removed_[lane] = sent[lane];
  }
  return has_loss_ ? AddLoss() : Status();
}

Status Outbox::MakeRoom() {
  while (bytes_ > bytes_max_) {
    Result<bool> gone = false;
    for (const FleetLane lane :
         {FleetLane::kSteps, FleetLane::kFindings, FleetLane::kRuns, FleetLane::kConclusions}) {
      gone = LetGo(lane);
      if (!gone.ok()) return gone.status();
      if (*gone) break;
    }
    if (!*gone) return Status();
  }
  return Status();
}

// Some rows of the lane; false when it has none.
Result<bool> Outbox::LetGo(FleetLane lane) {
  const bool oldest = lane == FleetLane::kSteps || lane == FleetLane::kRuns;
  const std::string sql = fmt::format(
      "DELETE FROM outbox WHERE sequence IN (SELECT sequence FROM outbox WHERE lane = {}"
      " AND kind <> {} ORDER BY sequence {} LIMIT {}) RETURNING LENGTH(body)",
      static_cast<int>(lane), static_cast<int>(FleetKind::kLoss), oldest ? "ASC" : "DESC",
      lane == FleetLane::kSteps ? kLetGoAtOnce : 1);
  Result<Statement> remove = database_->Prepare(sql.c_str());
  if (!remove.ok()) return remove.status();
  int64_t count = 0;
  Result<bool> removed = remove->Next();
  for (; removed.ok() && *removed; removed = remove->Next(), ++count)
    bytes_ -= static_cast<uint64_t>(remove->Integer(0) + kRowBytes);
  if (!removed.ok()) return removed.status();
  if (count == 0) return false;
  has_loss_ = true;
  const std::string add =
      fmt::format("UPDATE outbox_self SET {0} = {0} + {1}", LostColumn(lane), count);
  if (Status added = database_->Execute(add.c_str()); !added.ok()) return added;
  return true;
}

Status Outbox::AddLoss() {
  Result<Statement> read = database_->Prepare(
      "SELECT lost_conclusions, lost_runs, lost_findings, lost_steps FROM outbox_self");
  if (!read.ok()) return read.status();
  const Result<bool> row = read->Next();
  if (!row.ok()) return row.status();
  OutboxLoss loss;
  loss.set_conclusions(read->Unsigned(0));
  loss.set_runs(read->Unsigned(1));
  loss.set_findings(read->Unsigned(2));
  loss.set_steps(read->Unsigned(3));
  has_loss_ = false;
  return Insert({.daemon = daemon_,
                 .recorded_ns = now_real_ns_,
                 .kind = FleetKind::kLoss,
                 .body = loss.SerializeAsString()});
}

}  // namespace nanwatch
