// SPDX-License-Identifier: Apache-2.0
#include "tools/forwarder.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "daemon/base/directories.h"
#include "daemon/fleet/otlp_logs.h"

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

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Forwarder::Forwarder(std::string state_dir, std::string host, Send send, const Clock& clock,
                     Report report, uint64_t seed)
    : state_dir_(std::move(state_dir)),
      host_(std::move(host)),
      send_(std::move(send)),
      clock_(clock),
      report_(std::move(report)),
      random_(seed),
      sent_(ReadSent(state_dir_)) {}

uint64_t Forwarder::Step() {
  is_done_ = false;
  if (Status opened = OpenOutbox(); !opened.ok()) {
    if (trouble_.message() != opened.message()) report_(opened.message());
    trouble_ = opened;
    return kNoOutboxNs;
  }
  if (!sent_is_written_) sent_is_written_ = WriteSent(state_dir_, sent_).ok();
  const Result<int64_t> change = outbox_->ChangeCounter();
  if (change.ok() && seen_change_ == *change) {
    is_done_ = true;
    return kForwardLookNs;
  }
  const Result<std::vector<FleetRow>> rows = outbox_->Pending(sent_, rows_max_, kForwardBytesMax);
  if (!rows.ok()) {
    outbox_.reset();
    return TryLater(rows.status(), 0);
  }
  if (rows->empty()) {
    is_done_ = true;
    if (change.ok()) seen_change_ = *change;
    return kForwardLookNs;
  }
  return IsDue(*rows) ? SendRows(*rows) : kForwardLookNs;
}

// The daemon may have made a new database, or not made one yet.
Status Forwarder::OpenOutbox() {
  const uint64_t inode = InodeOf(DatabasePath(state_dir_));
  if (outbox_ && inode == outbox_inode_) return Status();
  outbox_.reset();
  seen_change_.reset();
  Result<OutboxReader> opened = OutboxReader::Open(state_dir_);
  if (!opened.ok()) return opened.status();
  outbox_ = *std::move(opened);
  outbox_inode_ = inode;
  if (trouble_.kind() == ErrorKind::kNotFound) trouble_ = Status();
  return Status();
}

bool Forwarder::IsDue(const std::vector<FleetRow>& rows) const {
  return rows.size() >= rows_max_ || std::any_of(rows.begin(), rows.end(), IsUrgent) ||
         clock_.monotonic_ns() - sent_at_ns_ >= kForwardGatherNs;
}

uint64_t Forwarder::SendRows(const std::vector<FleetRow>& rows) {
  sent_at_ns_ = clock_.monotonic_ns();
  const Result<HttpReply> reply = send_(EncodeLogs(rows, host_));
  if (!reply.ok()) return TryLater(reply.status(), 0);
  switch (reply->status) {
    case 200:
      return Acknowledge(rows, *reply);
    case 400:
    case 413:
      return RefusedForGood(rows, *reply);
    default:
      return TryLater(
          Status(ErrorKind::kIo, "the gatherer answered " + std::to_string(reply->status) + ": " +
                                     FirstLine(reply->body)),
          static_cast<uint64_t>(reply->retry_after_s) * kNsPerSecond);
  }
}

uint64_t Forwarder::Acknowledge(const std::vector<FleetRow>& rows, const HttpReply& reply) {
  const Result<DecodedAnswer> answer = DecodeLogsAnswer(reply.body);
  if (!answer.ok())
    return TryLater(
        Status(ErrorKind::kIo, "what answered is no gatherer: " + answer.status().message()), 0);
  if (failures_ > 0) report_("rows are taken again");
  failures_ = 0;
  trouble_ = Status();
  if (answer->rejected > 0) CountRejected(answer->rejected, answer->reason);
  acknowledged_ += rows.size() - std::min<uint64_t>(answer->rejected, rows.size());
  PassOver(rows);
  rows_max_ = std::min(kForwardRowsMax, rows_max_ * 2);
  return 0;
}

// One of them is at fault, or they are too many.
uint64_t Forwarder::RefusedForGood(const std::vector<FleetRow>& rows, const HttpReply& reply) {
  if (rows.size() > 1) {
    rows_max_ = rows.size() / 2;
    return 0;
  }
  CountRejected(1, FirstLine(reply.body));
  PassOver(rows);
  return 0;
}

uint64_t Forwarder::TryLater(const Status& why, uint64_t at_least_ns) {
  if (failures_++ == 0) report_("rows wait until they can be sent: " + why.message());
  trouble_ = why;
  const uint64_t doublings = std::min<uint32_t>(failures_ - 1, 16);
  const uint64_t longest = std::min(kForwardPauseMaxNs, kForwardPauseNs << doublings);
  std::uniform_int_distribution<uint64_t> pause(longest / 2, longest);
  return std::max(pause(random_), at_least_ns);
}

void Forwarder::PassOver(const std::vector<FleetRow>& rows) {
  for (const FleetRow& row : rows) {
    uint64_t& lane = sent_[static_cast<size_t>(LaneOf(row.kind))];
    lane = std::max(lane, row.sequence);
  }
  const Status written = WriteSent(state_dir_, sent_);
  // They will be sent again by whoever comes after us, and known there.
  if (!written.ok() && sent_is_written_) report_(written.message());
  sent_is_written_ = written.ok();
}

void Forwarder::CountRejected(uint64_t rows, const std::string& why) {
  if (rejected_ == 0)
    report_("the gatherer rejects rows for good (" + why + "); further ones are only counted");
  rejected_ += rows;
}

}  // namespace nanwatch
