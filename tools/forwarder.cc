// SPDX-License-Identifier: Apache-2.0
#include "tools/forwarder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "daemon/base/directories.h"
#include "daemon/fleet/held_row.h"
#include "daemon/fleet/otlp_logs.h"
#include "daemon/report/cell_text.h"
#include "daemon/store/outbox_marker.h"
#include "tools/places.h"

namespace nanwatch {
namespace {

constexpr uint64_t kNoOutboxNs = 2'000'000'000;

bool IsUrgent(const FleetRow& row) {
  const FleetLane lane = LaneOf(row.kind);
  return lane == FleetLane::kConclusions || lane == FleetLane::kFindings;
}

uint64_t InodeOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

std::string FirstLine(const std::string& text) {
  return Printable(text.substr(0, std::min<size_t>(text.find('\n'), 200)));
}

bool IsOfAGatherer(const HttpReply& reply) { return reply.headers.contains(kGathererHeader); }

bool SaysThatHeldIsMissing(const HttpReply& reply) {
  const auto header = reply.headers.find(kHeldRowHeader);
  return IsOfAGatherer(reply) && header != reply.headers.end() && header->second == kRowIsMissing;
}

// A state may be replaced; of states alone one will do.
const FleetRow& LastFact(const std::vector<FleetRow>& rows) {
  const auto fact = std::find_if(rows.rbegin(), rows.rend(),
                                 [](const FleetRow& row) { return row.kind != FleetKind::kRun; });
  return fact == rows.rend() ? rows.back() : *fact;
}

bool HasOtlpType(const HttpReply& reply) {
  const auto type = reply.headers.find("content-type");
  return type != reply.headers.end() && type->second.substr(0, type->second.find(';')) == kOtlpType;
}

}  // namespace

Forwarder::Forwarder(Options options, Send send, const Clock& clock, Report report)
    : options_(std::move(options)),
      send_(std::move(send)),
      clock_(clock),
      report_(std::move(report)),
      random_(options_.seed),
      sent_(ReadSent(options_.state_dir)),
      refused_(ReadRefused(options_.state_dir)),
      marks_(ReadMarks(options_.state_dir)) {
  if (!IsSentDamaged(options_.state_dir)) return;
  report_(SentPath(options_.state_dir) +
          " is damaged: all that the outbox holds is sent again, and its receiver knows what it "
          "has");
}

uint64_t Forwarder::Step() {
  is_done_ = false;
  if (Status opened = OpenOutbox(); !opened.ok()) {
    if (trouble_.message() != opened.message()) report_(opened.message());
    trouble_ = opened;
    return kNoOutboxNs;
  }
  if (!sent_is_written_) WriteSentFile();
  if (IsToGoBack()) {
    if (Status back = GoBack(); !back.ok()) return TryLater(back, 0);
  }
  const Result<int64_t> change = outbox_->ChangeCounter();
  if (change.ok() && seen_change_ == *change) return NothingWaits();
  ReportLoss();
  kept_ = outbox_->IsKept();
  const Result<std::vector<FleetRow>> rows = outbox_->Pending(sent_, rows_max_, kForwardBytesMax);
  if (!rows.ok()) {
    outbox_.reset();
    return TryLater(Explained(rows.status()), 0);
  }
  if (rows->empty()) {
    if (change.ok()) seen_change_ = *change;
    return NothingWaits();
  }
  return IsDue(*rows) ? SendRows(*rows) : kForwardLookNs;
}

// Once all of an outbox that the daemon left is sent, it is as if there were none. A damaged marker is
// no reason to keep rows, only to say so.
uint64_t Forwarder::NothingWaits() {
  AskNowAndThen();
  if (IsToGoBack()) return 0;
  if (IsOutboxDamage(kept_)) {
    kept_ =
        Status(ErrorKind::kNotFound,
               "all that waited was sent, but whether the daemon still writes to the outbox in " +
                   options_.state_dir + " cannot be read (" + kept_.message() +
                   "): start nanwatchd again, which repairs that");
  }
  if (kept_.kind() != ErrorKind::kNotFound) {
    if (trouble_.kind() == ErrorKind::kNotFound) trouble_ = Status();
    is_done_ = true;
    return kForwardLookNs;
  }
  if (trouble_.message() != kept_.message()) report_(kept_.message());
  trouble_ = kept_;
  return kNoOutboxNs;
}

// kNotFound says itself what to do.
Status Forwarder::Explained(const Status& why) const {
  return why.kind() == ErrorKind::kNotFound
             ? why
             : UnreadableDatabase(why, DatabasePath(options_.state_dir));
}

// The daemon may have made a new database, or not made one yet.
Status Forwarder::OpenOutbox() {
  const uint64_t inode = InodeOf(DatabasePath(options_.state_dir));
  if (outbox_ && inode == outbox_inode_) return Status();
  outbox_.reset();
  seen_change_.reset();
  Result<OutboxReader> opened = OutboxReader::Open(options_.state_dir);
  if (!opened.ok()) return Explained(opened.status());
  outbox_ = *std::move(opened);
  outbox_inode_ = inode;
  if (trouble_.kind() == ErrorKind::kNotFound) trouble_ = Status();
  return Status();
}

bool Forwarder::IsDue(const std::vector<FleetRow>& rows) const {
  return rows.size() >= rows_max_ || std::any_of(rows.begin(), rows.end(), IsUrgent) ||
         clock_.monotonic_ns() - sent_at_ns_ >= kForwardGatherNs;
}

Result<HttpReply> Forwarder::Request(const std::vector<FleetRow>& rows) {
  const uint64_t now_ns = clock_.real_ns();
  if (!marks_.empty() && now_ns - marks_.back().at_real_ns > kSentMarksKeptNs) marks_.clear();
  HttpHeaders headers;
  if (!marks_.empty()) headers.emplace_back(kHeldRowHeader, ToText(marks_.back().row));
  return send_(EncodeLogs(rows, options_.host), headers);
}

Result<bool> Forwarder::IsNewestThere() {
  const Result<HttpReply> reply = Request({});
  if (!reply.ok()) return reply.status();
  if (reply->status != 200 || !IsOfAGatherer(*reply))
    return Status(ErrorKind::kIo, fmt::format("the gatherer answered {}", reply->status));
  return !SaysThatHeldIsMissing(*reply);
}

// Nothing waits, so where nobody answers there is nothing to say.
void Forwarder::AskNowAndThen() {
  if (marks_.empty() || clock_.monotonic_ns() < ask_at_ns_) return;
  const Result<bool> is_there = IsNewestThere();
  questions_failed_ = is_there.ok() ? 0 : questions_failed_ + 1;
  ask_at_ns_ =
      clock_.monotonic_ns() + (is_there.ok() ? kForwardAskNs : PauseAfter(questions_failed_));
  if (is_there.ok() && !*is_there) is_newest_missing_ = true;
}

// Hosts whose gatherers write to different databases would do nothing else.
bool Forwarder::IsToGoBack() const {
  return is_newest_missing_ &&
         (!went_back_at_ns_ || clock_.monotonic_ns() - *went_back_at_ns_ >= kForwardAgainNs);
}

// Not ok: nobody answers, and it goes on from there, as the newest is missing still.
Status Forwarder::GoBack() {
  for (; !marks_.empty(); marks_.pop_back()) {
    const Result<bool> is_there = IsNewestThere();
    if (!is_there.ok()) return is_there.status();
    if (*is_there) break;
  }
  report_(
      "the gatherer's database lacks rows that it had taken: it was restored from a backup, or is "
      "another one; they are sent again, as far as the outbox still has them");
  is_newest_missing_ = false;
  went_back_at_ns_ = clock_.monotonic_ns();
  ++times_back_;
  sent_ = marks_.empty() ? SentUpTo{} : marks_.back().up_to;
  seen_change_.reset();
  WriteSentFile();
  return Status();
}

uint64_t Forwarder::SendRows(const std::vector<FleetRow>& rows) {
  sent_at_ns_ = clock_.monotonic_ns();
  const Result<HttpReply> reply = Request(rows);
  if (!reply.ok()) return TryLater(reply.status(), 0);
  const bool is_ours = IsOfAGatherer(*reply);
  if (reply->status == 200 && (is_ours || (options_.to_a_collector && HasOtlpType(*reply))))
    return Acknowledge(rows, *reply);
  if (is_ours && (reply->status == 400 || reply->status == 413)) return Refused(rows, *reply);
  return NotAnswered(rows, *reply);
}

uint64_t Forwarder::Acknowledge(const std::vector<FleetRow>& rows, const HttpReply& reply) {
  const Result<DecodedAnswer> answer = DecodeLogsAnswer(reply.body);
  if (!answer.ok()) return NotAnswered(rows, reply);
  if (answer->rejected > 0 && !IsOfAGatherer(reply))
    return TryLater(Status(ErrorKind::kIo, "the Collector rejects rows: " + answer->reason), 0);
  if (failures_ > 0) report_("rows are taken again");
  failures_ = 0;
  trouble_ = Status();
  taken_at_real_ns_ = clock_.real_ns();
  is_newest_missing_ |= SaysThatHeldIsMissing(reply);
  // The others are there, and known again when they come with fewer.
  if (answer->rejected > 0 && answer->rejected < rows.size()) {
    rows_max_ = rows.size() / 2;
    return 0;
  }
  if (answer->rejected > 0) {
    CountRejected(rows, answer->reason);
  } else {
    acknowledged_ += rows.size();
  }
  PassOver(rows);
  if (answer->rejected == 0 && IsOfAGatherer(reply)) MarkNewest(rows);
  WriteSentFile();
  rows_max_ = std::min(kForwardRowsMax, rows_max_ * 2);
  return 0;
}

// One of them is at fault, or they are too many.
uint64_t Forwarder::Refused(const std::vector<FleetRow>& rows, const HttpReply& reply) {
  if (rows.size() > 1) {
    rows_max_ = rows.size() / 2;
    return 0;
  }
  CountRejected(rows, FirstLine(reply.body));
  PassOver(rows);
  WriteSentFile();
  return 0;
}

// Less at once next time: some proxies take no long bodies, and a gatherer may find what it can
// take.
uint64_t Forwarder::NotAnswered(const std::vector<FleetRow>& rows, const HttpReply& reply) {
  rows_max_ = std::max<size_t>(1, rows.size() / 2);
  const std::string answer = std::to_string(reply.status) + ": " + FirstLine(reply.body);
  const std::string what =
      IsOfAGatherer(reply)
          ? "the gatherer answered " + answer
          : "what answers there is no nanwatch-gather, it says " + answer +
                " (check --to and what stands between; for an OpenTelemetry Collector add "
                "--collector)";
  return TryLater(Status(ErrorKind::kIo, what),
                  static_cast<uint64_t>(reply.retry_after_s) * kNsPerSecond);
}

uint64_t Forwarder::TryLater(const Status& why, uint64_t at_least_ns) {
  ++requests_failed_;
  if (failures_++ == 0) report_("rows wait until they can be sent: " + why.message());
  trouble_ = why;
  return std::max(PauseAfter(failures_), at_least_ns);
}

uint64_t Forwarder::PauseAfter(uint32_t failures) {
  const uint64_t doublings = std::min<uint32_t>(failures - 1, 16);
  const uint64_t longest = std::min(kForwardPauseMaxNs, kForwardPauseNs << doublings);
  std::uniform_int_distribution<uint64_t> pause(longest / 2, longest);
  return pause(random_);
}

void Forwarder::PassOver(const std::vector<FleetRow>& rows) {
  for (const FleetRow& row : rows) {
    uint64_t& lane = sent_[static_cast<size_t>(LaneOf(row.kind))];
    lane = std::max(lane, row.sequence);
  }
}

// One that is missing stays the newest, until it is gone back.
void Forwarder::MarkNewest(const std::vector<FleetRow>& rows) {
  if (is_newest_missing_) return;
  AddMark(marks_, {.at_real_ns = clock_.real_ns(), .up_to = sent_, .row = NameOf(LastFact(rows))});
  ask_at_ns_ = clock_.monotonic_ns() + kForwardAskNs;
}

void Forwarder::WriteSentFile() {
  const Status written = WriteSent(options_.state_dir, sent_, refused_, marks_);
  // They will be sent again by whoever comes after us, and known there.
  if (!written.ok() && sent_is_written_) report_(written.message());
  sent_is_written_ = written.ok();
}

// The first, and each time that it has doubled.
void Forwarder::ReportLoss() {
  const Result<OutboxLoss> loss = outbox_->Loss();
  if (!loss.ok()) return;
  const uint64_t lost = loss->findings() + loss->runs() + loss->conclusions();
  if (lost == 0 || lost < 2 * reported_loss_) return;
  reported_loss_ = lost;
  report_(LossText(*loss));
}

std::string Forwarder::Metrics() {
  OutboxReader::Backlog backlog;
  OutboxLoss loss;
  if (outbox_) {
    if (const auto known = outbox_->BacklogOf(sent_); known.ok()) backlog = *known;
    if (const auto known = outbox_->Loss(); known.ok()) loss = *known;
  }
  const uint64_t now_ns = clock_.real_ns();
  const uint64_t oldest_ns = backlog.rows == 0 ? now_ns : std::min(now_ns, backlog.oldest_real_ns);
  std::string text;
  const auto add = [&text](const char* name, const char* type, const char* help, double value) {
    text += fmt::format(
        "# HELP nanwatch_forward_{0} {2}\n# TYPE nanwatch_forward_{0} {1}\n"
        "nanwatch_forward_{0} {3}\n",
        name, type, help, value);
  };
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  add("queue_rows", "gauge", "Rows in the outbox that were not sent", number(backlog.rows));
  add("lag_seconds", "gauge", "Age of the oldest of these",
      number(now_ns - oldest_ns) / number(kNsPerSecond));
  add("rows_acknowledged_total", "counter", "Rows that were taken", number(acknowledged_));
  add("rows_refused_total", "counter", "Rows that were refused for good", number(rejected_));
  add("sent_again_total", "counter",
      "Times that rows were sent again because a database lacked what it had", number(times_back_));
  add("requests_failed_total", "counter", "Requests without an answer that counts",
      number(requests_failed_));
  add("rows_lost", "gauge", "Rows and records that the outbox had no room for, steps not counted",
      number(loss.findings() + loss.runs() + loss.conclusions()));
  add("taken_timestamp_seconds", "gauge", "When rows were taken last; 0: never",
      number(taken_at_real_ns_ / kNsPerSecond));
  return text;
}

// What the run loses by it is said in its next state, by its daemon. A refused state counts for no
// run: what takes its place would be refused as well, and so on.
void Forwarder::CountRejected(const std::vector<FleetRow>& rows, const std::string& why) {
  if (rejected_ == 0)
    report_("the gatherer rejects rows for good (" + why + "); further ones are only counted");
  rejected_ += rows.size();
  refused_.rows += rows.size();
  for (const FleetRow& row : rows) {
    if (row.run.empty() || row.kind == FleetKind::kStep || row.kind == FleetKind::kRun) continue;
    if (refused_.runs.size() >= kRefusedRunsMax && !refused_.runs.contains(row.run))
      refused_.runs.erase(refused_.runs.begin());
    RefusedRows::OfRun& of_run = refused_.runs[row.run];
    const bool is_findings = row.kind == FleetKind::kFindings;
    of_run.findings += is_findings ? 1 : 0;
    of_run.records += is_findings ? RecordsIn(row.body) : 1;
  }
}

}  // namespace nanwatch
