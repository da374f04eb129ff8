// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox_past.h"

#include <algorithm>
#include <functional>

namespace nanwatch {
namespace {

constexpr uint64_t kNotesKept = 288;  // of two days, one in ten minutes

constexpr char kPastTable[] =
    "CREATE TABLE IF NOT EXISTS outbox_past (at_ns INTEGER PRIMARY KEY,"
    " conclusions INTEGER NOT NULL, runs INTEGER NOT NULL, findings INTEGER NOT NULL,"
    " steps INTEGER NOT NULL)";

// What was sent further then is to be sent again.
constexpr char kForget[] =
    "DELETE FROM outbox_past"
    " WHERE at_ns >= ?1 OR conclusions > ?2 OR runs > ?3 OR findings > ?4 OR steps > ?5";
constexpr char kNote[] = "INSERT INTO outbox_past VALUES (?1, ?2, ?3, ?4, ?5)";

}  // namespace

Status OutboxPast::Open() { return database_->Execute(kPastTable); }

Result<SentUpTo> OutboxPast::OldAt(uint64_t now_real_ns, const SentUpTo& sent) {
  const bool is_back =
      std::mismatch(sent.begin(), sent.end(), sent_.begin(), std::greater_equal<>()).first !=
      sent.end();
  sent_ = sent;
  // The clock may be set back, too.
  if (is_back || now_real_ns < noted_ns_ || now_real_ns - noted_ns_ >= kept_ns_ / kNotesKept) {
    if (Status noted = Note(now_real_ns, sent); !noted.ok()) return noted;
    if (Status read = ReadOld(now_real_ns); !read.ok()) return read;
    noted_ns_ = now_real_ns;
  }
  return old_;
}

Status OutboxPast::Note(uint64_t now_real_ns, const SentUpTo& sent) {
  for (const char* sql : {kForget, kNote}) {
    Result<Statement> write = database_->Prepare(sql);
    if (!write.ok()) return write.status();
    write->BindUnsigned(1, now_real_ns);
    for (size_t lane = 0; lane < sent.size(); ++lane)
      write->BindUnsigned(static_cast<int>(lane) + 2, sent[lane]);
    if (Status written = write->Run(); !written.ok()) return written;
  }
  return Status();
}

Status OutboxPast::ReadOld(uint64_t now_real_ns) {
  old_ = {};
  Result<Statement> read = database_->Prepare(
      "SELECT at_ns, conclusions, runs, findings, steps FROM outbox_past WHERE at_ns <= ?1"
      " ORDER BY at_ns DESC LIMIT 1");
  if (!read.ok()) return read.status();
  const Result<bool> row =
      read->BindUnsigned(1, now_real_ns - std::min(now_real_ns, kept_ns_)).Next();
  if (!row.ok() || !*row) return row.status();
  const uint64_t at_ns = read->Unsigned(0);
  for (size_t lane = 0; lane < old_.size(); ++lane)
    old_[lane] = read->Unsigned(static_cast<int>(lane) + 1);
  Result<Statement> forget = database_->Prepare("DELETE FROM outbox_past WHERE at_ns < ?1");
  if (!forget.ok()) return forget.status();
  return forget->BindUnsigned(1, at_ns).Run();
}

}  // namespace nanwatch
