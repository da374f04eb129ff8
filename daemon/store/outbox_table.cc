// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox_table.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/base/directories.h"
#include "daemon/store/rows.h"
#include "fleet.pb.h"
#include "verdict.pb.h"

namespace nanwatch {
namespace {

constexpr uint64_t kRemoveEveryNs = 1'000'000'000;
constexpr int64_t kRowBytes = 200;  // what a row takes besides its body, about
constexpr int kLetGoAtOnce = 64;
constexpr int kRemoveAtOnce = 2'000;  // in a second: who waits for the transaction is a daemon
constexpr FleetLane kWorthLittleFirst[] = {FleetLane::kSteps, FleetLane::kFindings,
                                           FleetLane::kRuns, FleetLane::kConclusions};

// Apart from the schema's version (schema.h): a database without an outbox does not know it.
constexpr char kTables[] =
    "CREATE TABLE IF NOT EXISTS outbox ("
    " sequence INTEGER PRIMARY KEY, lane INTEGER NOT NULL, daemon TEXT NOT NULL,"
    " recorded_ns INTEGER NOT NULL, kind INTEGER NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL,"
    " rank INTEGER NOT NULL, launch TEXT NOT NULL, body BLOB NOT NULL,"
    " subject TEXT NOT NULL,"      // what a newer row replaces; "": nothing does
    " ordinal INTEGER NOT NULL);"  // among the findings of its run; 0 of others
    "CREATE INDEX IF NOT EXISTS outbox_by_lane ON outbox (lane, sequence);"
    "CREATE INDEX IF NOT EXISTS outbox_by_ordinal ON outbox (lane, ordinal, sequence);"
    "CREATE INDEX IF NOT EXISTS outbox_by_subject ON outbox (kind, subject) WHERE subject <> '';"
    "CREATE TABLE IF NOT EXISTS outbox_launch (run TEXT PRIMARY KEY, launch TEXT NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS outbox_self (version INTEGER NOT NULL, daemon TEXT NOT NULL,"
    " place TEXT NOT NULL, last_sequence INTEGER NOT NULL, lost_conclusions INTEGER NOT NULL,"
    " lost_runs INTEGER NOT NULL, lost_findings INTEGER NOT NULL, lost_steps INTEGER NOT NULL,"
    " lost_outboxes INTEGER NOT NULL)";

constexpr char kDrop[] =
    "DROP TABLE IF EXISTS outbox; DROP TABLE IF EXISTS outbox_launch;"
    "DROP TABLE IF EXISTS outbox_self; DROP TABLE IF EXISTS outbox_lost;"
    "DROP TABLE IF EXISTS outbox_findings; DROP TABLE IF EXISTS outbox_refused;"
    "DROP TABLE IF EXISTS outbox_past";

// Of runs that the database keeps no more.
constexpr char kSweep[] = "DELETE FROM outbox_launch WHERE run NOT IN (SELECT id FROM run)";

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

}  // namespace

// ---- opening

Result<OutboxTable> OutboxTable::Open(const Database& database, const std::string& database_path,
                                      uint64_t now_real_ns, OutboxOptions options,
                                      std::string& note) {
  OutboxTable table(database, std::move(options));
  table.now_real_ns_ = now_real_ns;
  table.state_dir_ = database_path.substr(0, database_path.find_last_of('/'));
  const Result<std::optional<OutboxMarker>> marker = ReadOutboxMarker(database);
  if (!marker.ok()) return marker.status();
  if (*marker && !(*marker)->damage.empty()) {
    if (Status dropped = database.Execute(kDrop); !dropped.ok()) return dropped;
  }
  if (Status made = database.Execute(kTables); !made.ok()) return made;
  if (Status swept = database.Execute(kSweep); !swept.ok()) return swept;
  if (Status opened = table.ledger_.Open(); !opened.ok()) return opened;
  if (Status opened = table.past_.Open(); !opened.ok()) return opened;
  // Before the first time of all, too, runs that go on have said something.
  if (Status resumed = table.Resume(*marker); !resumed.ok()) return resumed;
  if (Status taken = table.TakeIdentity(database_path, now_real_ns, note); !taken.ok())
    return taken;
  if (Status taken = table.TakeRefused(); !taken.ok()) return taken;
  return table;
}

// What was recorded while nothing was written here does not arrive.
Status OutboxTable::Resume(const std::optional<OutboxMarker>& marker) {
  if (marker && marker->is_kept) return Status();
  // Rows that waited are gone as well; or there were none before.
  const bool all_running = !marker || !marker->damage.empty();
  const uint64_t since_real_ns = marker ? marker->since_real_ns : now_real_ns_;
  if (Status lost = ledger_.CountUnwritten(since_real_ns, all_running); !lost.ok()) return lost;
  return WriteOutboxMarker(*database_, {.is_kept = true, .since_real_ns = now_real_ns_});
}

Status OutboxTable::TakeIdentity(const std::string& database_path, uint64_t now_real_ns,
                                 std::string& note) {
  const std::string place = PlaceOf(database_path);
  Result<Statement> read =
      database_->Prepare("SELECT daemon, place, last_sequence FROM outbox_self");
  if (!read.ok()) return read.status();
  const Result<bool> row = read->Next();
  if (!row.ok()) return row.status();
  const SentUpTo sent = ReadSent(state_dir_);
  next_sequence_ = std::max(now_real_ns / 1000, *std::max_element(sent.begin(), sent.end()) + 1);
  daemon_ = NewUuid();
  if (*row) {
    next_sequence_ = std::max(next_sequence_, read->Unsigned(2) + 1);
    if (read->Text(1) == place) {
      daemon_ = read->Text(0);
      return NoteLoss(note);
    }
    note = "the database in " + state_dir_ +
           " is a copy of another daemon's: to the fleet this daemon is another one from now on";
  } else if (access(SentPath(state_dir_).c_str(), F_OK) == 0) {
    // The file is as old as the first outbox here.
    has_loss_ = true;
    note = "the database in " + state_dir_ +
           " is new, or its outbox was damaged: what the outbox of the one before had not sent yet "
           "does not reach the fleet";
  } else if (Status written = WriteSent(state_dir_, SentUpTo{}); !written.ok()) {
    return written;
  }
  const char* sql = *row ? "UPDATE outbox_self SET daemon = ?1, place = ?2"
                         : "INSERT INTO outbox_self VALUES (1, ?1, ?2, 0, 0, 0, 0, 0, ?3)";
  Result<Statement> write = database_->Prepare(sql);
  if (!write.ok()) return write.status();
  write->BindText(1, daemon_).BindText(2, place);
  if (!*row) write->Bind(3, has_loss_ ? 1 : 0);
  return write->Run();
}

Status OutboxTable::NoteLoss(std::string& note) const {
  const Result<OutboxLoss> loss = ReadLoss(*database_);
  if (!loss.ok()) return loss.status();
  if (loss->findings() + loss->runs() + loss->conclusions() == 0) return Status();
  note =
      fmt::format("{} ({}); see whether 'nanwatch forward' sends it", LossText(*loss), state_dir_);
  return Status();
}

Status OutboxTable::TakeRefused() {
  const Result<bool> is_new = ledger_.TakeRefused(ReadRefused(state_dir_));
  if (is_new.ok() && *is_new) has_loss_ = true;
  return is_new.status();
}

Status OutboxTable::CountRows() {
  if (counted_) return Status();
  const Result<int64_t> bytes =
      database_->Ask("SELECT COALESCE(SUM(LENGTH(body)), 0) + 200 * COUNT(*) FROM outbox");
  if (!bytes.ok()) return bytes.status();
  const Result<int64_t> rows = database_->Ask("SELECT COUNT(*) FROM outbox");
  if (!rows.ok()) return rows.status();
  bytes_ = static_cast<uint64_t>(*bytes);
  rows_ = static_cast<uint64_t>(*rows);
  counted_ = true;
  return Status();
}

void OutboxTable::Forget() {
  counted_ = false;
  removed_ = {};
  removed_at_ns_ = 0;
  ledger_.Forget();
  past_.Forget();
}

void OutboxTable::Uncount(int64_t body_bytes) {
  bytes_ -= std::min(bytes_, static_cast<uint64_t>(body_bytes + kRowBytes));
  rows_ -= std::min<uint64_t>(rows_, 1);
}

// ---- adding

Status OutboxTable::Insert(FleetRow row, const std::string& subject) {
  if (Status counted = CountRows(); !counted.ok()) return counted;
  row.sequence = next_sequence_++;
  if (Status removed = RemoveWaiting(row, subject); !removed.ok()) return removed;
  const Result<int64_t> ordinal =
      row.kind == FleetKind::kFindings ? ledger_.CountWritten(row.run) : Result<int64_t>(0);
  if (!ordinal.ok()) return ordinal.status();
  Result<Statement> write =
      database_->Prepare("INSERT INTO outbox VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)");
  if (!write.ok()) return write.status();
  write->BindUnsigned(1, row.sequence).Bind(2, static_cast<int>(LaneOf(row.kind)));
  write->BindText(3, row.daemon).BindUnsigned(4, row.recorded_ns);
  write->Bind(5, static_cast<int>(row.kind)).BindText(6, row.job).BindText(7, row.run);
  write->Bind(8, row.rank).BindText(9, row.launch).BindBlob(10, row.body);
  if (Status written = write->BindText(11, subject).Bind(12, *ordinal).Run(); !written.ok())
    return written;
  Result<Statement> last = database_->Prepare("UPDATE outbox_self SET last_sequence = ?1");
  if (!last.ok()) return last.status();
  if (Status set = last->BindUnsigned(1, row.sequence).Run(); !set.ok()) return set;
  bytes_ += row.body.size() + static_cast<uint64_t>(kRowBytes);
  ++rows_;
  return MakeRoom();
}

// A copy's rows of the original stay.
Status OutboxTable::RemoveWaiting(const FleetRow& row, const std::string& subject) {
  if (subject.empty()) return Status();
  Result<Statement> old = database_->Prepare(
      "DELETE FROM outbox WHERE kind = ?1 AND subject = ?2 AND subject <> '' AND daemon = ?3"
      " RETURNING LENGTH(body)");
  if (!old.ok()) return old.status();
  old->Bind(1, static_cast<int>(row.kind)).BindText(2, subject).BindText(3, row.daemon);
  return Remove(*old).status();
}

// Runs a statement that removes rows and gives the lengths of their bodies; gives how many.
Result<uint64_t> OutboxTable::Remove(Statement& statement) {
  uint64_t count = 0;
  Result<bool> removed = statement.Next();
  for (; removed.ok() && *removed; removed = statement.Next(), ++count)
    Uncount(statement.Integer(0));
  if (!removed.ok()) return removed.status();
  return count;
}

// ---- removing

// In the transaction of what is added: nothing is written for this alone.
Status OutboxTable::RemoveSent(uint64_t now_real_ns) {
  now_real_ns_ = now_real_ns;
  if (Status counted = CountRows(); !counted.ok()) return counted;
  // The clock may be set back.
  if (now_real_ns >= removed_at_ns_ && now_real_ns - removed_at_ns_ < kRemoveEveryNs)
    return Status();
  removed_at_ns_ = now_real_ns;
  if (Status taken = TakeRefused(); !taken.ok()) return taken;
  const Result<SentUpTo> old = past_.OldAt(now_real_ns, ReadSent(state_dir_));
  if (!old.ok()) return old.status();
  for (size_t lane = 0; lane < old->size(); ++lane) {
    if ((*old)[lane] <= removed_[lane]) continue;
    Result<Statement> remove = database_->Prepare(
        "DELETE FROM outbox WHERE sequence IN (SELECT sequence FROM outbox WHERE lane = ?1"
        " AND sequence <= ?2 ORDER BY sequence LIMIT ?3) RETURNING LENGTH(body)");
    if (!remove.ok()) return remove.status();
    remove->Bind(1, static_cast<int64_t>(lane)).BindUnsigned(2, (*old)[lane]);
    const Result<uint64_t> removed = Remove(remove->Bind(3, kRemoveAtOnce));
    if (!removed.ok()) return removed.status();
    if (*removed < kRemoveAtOnce) removed_[lane] = (*old)[lane];
  }
  return has_loss_ ? AddLoss() : Status();
}

Status OutboxTable::MakeRoom() {
  while (bytes_ > options_.bytes_max || rows_ > options_.rows_max) {
    Result<bool> gone = LetGoOfSent();
    if (!gone.ok()) return gone.status();
    for (const FleetLane lane : kWorthLittleFirst) {
      if (*gone) break;
      gone = LetGo(lane);
      if (!gone.ok()) return gone.status();
    }
    if (!*gone) return Status();
  }
  return Status();
}

// Some of those that were acknowledged; false when there are none.
Result<bool> OutboxTable::LetGoOfSent() {
  // Not as it was a second ago: they may be to be sent again.
  const SentUpTo sent = ReadSent(state_dir_);
  for (const FleetLane lane : kWorthLittleFirst) {
    Result<Statement> remove = database_->Prepare(
        "DELETE FROM outbox WHERE sequence IN (SELECT sequence FROM outbox WHERE lane = ?1"
        " AND sequence <= ?2 ORDER BY sequence LIMIT ?3) RETURNING LENGTH(body)");
    if (!remove.ok()) return remove.status();
    const auto index = static_cast<size_t>(lane);
    remove->Bind(1, static_cast<int64_t>(index)).BindUnsigned(2, sent[index]);
    const Result<uint64_t> removed = Remove(remove->Bind(3, kLetGoAtOnce));
    if (!removed.ok()) return removed.status();
    if (*removed > 0) return true;
  }
  return false;
}

// Some rows of the lane; false when it has none.
Result<bool> OutboxTable::LetGo(FleetLane lane) {
  const bool oldest = lane == FleetLane::kSteps || lane == FleetLane::kRuns;
  const std::string sql = fmt::format(
      "DELETE FROM outbox WHERE sequence IN (SELECT sequence FROM outbox WHERE lane = {}"
      " AND kind <> {} ORDER BY {} LIMIT {}) RETURNING run, body",
      static_cast<int>(lane), static_cast<int>(FleetKind::kLoss),
      oldest ? "sequence" : "ordinal DESC, sequence DESC",
      lane == FleetLane::kSteps ? kLetGoAtOnce : 1);
  std::vector<std::pair<std::string, uint64_t>> lost;  // run, records
  uint64_t count = 0;
  {
    Result<Statement> remove = database_->Prepare(sql.c_str());
    if (!remove.ok()) return remove.status();
    Result<bool> removed = remove->Next();
    for (; removed.ok() && *removed; removed = remove->Next(), ++count) {
      const std::string body = remove->Text(1);
      Uncount(static_cast<int64_t>(body.size()));
      if (lane == FleetLane::kFindings) lost.emplace_back(remove->Text(0), RecordsIn(body));
    }
    if (!removed.ok()) return removed.status();
  }
  if (count == 0) return false;
  has_loss_ = true;
  for (const auto& [run, records] : lost) {
    if (Status counted = CountLost(run, records, 1); !counted.ok()) return counted;
  }
  if (lane == FleetLane::kFindings) return true;
  const std::string add =
      fmt::format("UPDATE outbox_self SET {0} = {0} + {1}", LostColumn(lane), count);
  if (Status added = database_->Execute(add.c_str()); !added.ok()) return added;
  return true;
}

// ---- launches

// Kept: the process may be gone when the state of its run is written again.
Result<std::string> OutboxTable::LaunchOf(const std::string& id, const Run& run) {
  Result<Statement> read = database_->Prepare("SELECT launch FROM outbox_launch WHERE run = ?1");
  if (!read.ok()) return read.status();
  const Result<bool> found = read->BindText(1, id).Next();
  if (!found.ok()) return found.status();
  if (*found) return read->Text(0);
  std::string launch = options_.launch_of ? options_.launch_of(run) : "";
  Result<Statement> write = database_->Prepare("INSERT INTO outbox_launch VALUES (?1, ?2)");
  if (!write.ok()) return write.status();
  if (Status written = write->BindText(1, id).BindText(2, launch).Run(); !written.ok())
    return written;
  return launch;
}

// ---- what went

Status OutboxTable::CountLost(const std::string& run, uint64_t records, uint64_t rows) {
  has_loss_ = true;
  return ledger_.CountLost(run, records, rows);
}

Status OutboxTable::AddLoss() {
  const Result<OutboxLoss> loss = ReadLoss(*database_);
  if (!loss.ok()) return loss.status();
  has_loss_ = false;
  return Insert({.daemon = daemon_,
                 .recorded_ns = now_real_ns_,
                 .kind = FleetKind::kLoss,
                 .body = loss->SerializeAsString()},
                "loss");
}

}  // namespace nanwatch
