// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/segment_intake.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <string_view>

#include "daemon/correlate/step_clock.h"
#include "daemon/ingest/exit_file.h"
#include "daemon/ingest/segment_directory_watch.h"
#include "daemon/ingest/writer_liveness.h"
#include "daemon/loop/dead_places.h"
#include "proto/wire/naming.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

constexpr uint64_t kCountersEveryNs = kNsPerSecond;

// As the job names its segment.
std::string NameOf(const wire::SegmentHeader& header) {
  return wire::kSegmentPrefix + std::to_string(header.pid) + "-" + RunId(header.nonce) +
         wire::kSegmentSuffix;
}

std::string Key(const std::string& name, uint64_t inode) {
  return name + ":" + std::to_string(inode);
}

}  // namespace

SegmentIntake::SegmentIntake(std::string directory, const Clock& clock, Listener& listener)
    : directory_(std::move(directory)), clock_(clock), listener_(listener) {}

// ---- the directory

Status SegmentIntake::Rescan(Store& store) {
  const Result<SegmentListing> listing = ListSegments(directory_);
  if (!listing.ok()) return Status();  // gone or out of reach: the loop sees to that
  Status failed;
  for (const std::string& name : listing->segments) {
    if (failed = OpenNew(name, store); !failed.ok()) break;
  }
  for (const std::string& name : listing->unfinished)
    RemoveUnfinished(directory_ + "/" + name, clock_);
  for (const std::string& name : listing->exits) {
    if (!failed.ok()) break;
    failed = TakeExit(name, store);
  }
  std::erase_if(rejected_, [&](const auto& entry) {
    const bool is_segment =
        std::binary_search(listing->segments.begin(), listing->segments.end(), entry.first);
    return !is_segment &&
           !std::binary_search(listing->exits.begin(), listing->exits.end(), entry.first);
  });
  return failed.ok() ? failed : Failed(failed);
}

// An error is one of the database.
Status SegmentIntake::OpenNew(const std::string& name, Store& store) {
  const std::string path = directory_ + "/" + name;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return Status();
  const std::string key = Key(name, info.st_ino);
  if (segments_.contains(key) || put_aside_.contains(key)) return Status();
  const Rejected looks{info.st_ino, info.st_size,
                       info.st_mtim.tv_sec * int64_t{kNsPerSecond} + info.st_mtim.tv_nsec};
  if (const auto known = rejected_.find(name); known != rejected_.end() && known->second == looks)
    return Status();

  Result<SegmentReader> reader = SegmentReader::Open(path, SegmentReader::Access::kConsume);
  if (!reader.ok()) {
    Reject(name, looks, reader.status());
    return Status();
  }
  // Before the run it claims can be taken for the one that is read: a copy would shut that out.
  if (name != NameOf(reader->header())) {
    Reject(name, looks, Status(ErrorKind::kInvalid, "a copy of " + NameOf(reader->header())));
    return Status();
  }
  if (!MakeRoomFor(name, looks, *reader)) return Status();
  // Without these, records would be read twice: tried again at the next scan.
  const Result<std::optional<SegmentCursor>> cursor = store.CursorOf(reader->run_id());
  if (!cursor.ok()) return cursor.status();
  if (cursor->has_value()) {
    Status asked;
    reader->Resume(**cursor, [&](uint64_t ticket) {
      const Result<bool> has = store.HasRecord(reader->run_id(), ticket);
      if (!has.ok()) asked = has.status();
      return has.ok() && *has;
    });
    if (!asked.ok()) return asked;
  }
  const Result<RunRow> row = store.FindRun(reader->run_id());
  const bool known = row.ok() || IsSpoiltRow(row.status());
  if (!known && row.status().kind() != ErrorKind::kNotFound) return row.status();
  Result<TrainingHistory> training = store.TrainingOf(reader->run_id());
  if (!training.ok() && known && !IsSpoiltRow(training.status())) return training.status();
  const Status& spoilt = row.ok() && !training.ok() ? training.status() : row.status();
  if (IsSpoiltRow(spoilt))
    listener_.FileUnreadable(wire::CleanText(name), spoilt.message() + ": it is written anew");
  const uint64_t inode = reader->inode();
  segments_[Key(name, inode)] = std::make_unique<Segment>(
      Segment{.reader = *std::move(reader),
              .name = name,
              .reported_start = known,
              .was_ended = row.ok() && row->state.ended(),
              .training = training.ok() ? *std::move(training) : TrainingHistory()});
  return Status();
}

// A run has one segment. When its job made it anew after somebody removed it, everything of the
// removed one stands in the new one; two that both have names are one and a copy.
bool SegmentIntake::MakeRoomFor(const std::string& name, const Rejected& file,
                                const SegmentReader& reader) {
  const auto same = std::find_if(segments_.begin(), segments_.end(), [&](const auto& entry) {
    return entry.second->reader.run_id() == reader.run_id();
  });
  if (same == segments_.end()) return true;
  if (same->second->reader.IsUnlinked()) {
    segments_.erase(same);
    return true;
  }
  Reject(name, file, Status(ErrorKind::kInvalid, "a copy of " + same->second->name));
  return false;
}

void SegmentIntake::Reject(const std::string& name, const Rejected& file, const Status& why) {
  if (why.kind() == ErrorKind::kNotFound) return;  // gone meanwhile
  // Too many at once, no descriptor or memory: nothing is wrong with the file.
  if (why.kind() == ErrorKind::kBusy || why.kind() == ErrorKind::kIo ||
      why.kind() == ErrorKind::kResources) {
    ReportWaiting(why);
    return;
  }
  rejected_[name] = file;
  listener_.FileUnreadable(wire::CleanText(name), why.message());
}

Status SegmentIntake::TakeExit(const std::string& name, Store& store) {
  const std::string path = directory_ + "/" + name;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return Status();
  const Rejected looks{info.st_ino, info.st_size,
                       info.st_mtim.tv_sec * int64_t{kNsPerSecond} + info.st_mtim.tv_nsec};
  if (const auto known = rejected_.find(name); known != rejected_.end() && known->second == looks)
    return Status();
  const Result<JobExit> exit = ReadJobExit(path);
  if (!exit.ok()) {
    Reject(name, looks, exit.status());
    return Status();
  }
  if (clock_.monotonic_ns() < retry_at_ns_) return Status();
  const Status recorded = store.RecordExit(*exit);
  if (IsSpoiltRow(recorded)) {
    Reject(name, looks, recorded);
    return Status();
  }
  if (!recorded.ok()) return recorded;
  if (Status synced = store.Sync(); !synced.ok()) return synced;
  unlink(path.c_str());
  touched_jobs_.insert(exit->job);
  listener_.CommandEnded(*exit);
  return Status();
}

void SegmentIntake::EndVanishedRuns(Store& store) {
  const Result<std::vector<RunRow>> rows = store.Runs({.job = {}, .live_only = true});
  if (!rows.ok()) return;
  const HostIdentity self = HostIdentity::Current();
  for (const RunRow& row : *rows) {
    const bool is_open = std::any_of(segments_.begin(), segments_.end(), [&](const auto& entry) {
      return entry.second->reader.run_id() == row.id;
    });
    if (is_open || row.run.host() != self.host || !IsGone(row, self, clock_.real_ns())) continue;
    if (Status ended = store.EndRun(row.id, row.updated_real_ns); !ended.ok()) return;
    touched_jobs_.insert(row.job);
  }
}

// ---- the end of a segment

// The run counts as ended. The file is left to whoever wants to know why, and to `nanwatch gc`.
void SegmentIntake::PutAside(Segments::iterator entry, const Status& why, Store& store) {
  Segment& segment = *entry->second;
  listener_.FileUnreadable(wire::CleanText(segment.name),
                           "put aside, because it failed " + std::to_string(segment.failures) +
                               " times (" + why.message() +
                               "): 'nanwatch gc --unread' removes it once its job has ended");
  (void)store.EndRun(segment.reader.run_id(), clock_.real_ns());  // there may be no row of it yet
  put_aside_.insert(entry->first);
  segments_.erase(entry);
}

// What was read of it before stays in the database.
void SegmentIntake::GiveUp(Segment& segment, bool dead, const Status& why, Store& store) {
  if (!std::exchange(segment.reported_broken, true))
    listener_.FileUnreadable(wire::CleanText(segment.name), why.message());
  segment.counters_due_ns = clock_.monotonic_ns() + kCountersEveryNs;
  if (!dead) return;
  if (Status ended = store.EndRun(segment.reader.run_id(), clock_.real_ns()); !ended.ok())
    (void)Failed(ended);
  Remove(segment);
}

// After the commit: report it, and release the slots.
void SegmentIntake::Finish(Segment& segment, const RunBatch& batch, bool at_end) {
  if (Status done = segment.reader.Acknowledge(batch); !done.ok())
    listener_.Trouble(done.message());
  segment.counters_due_ns = clock_.monotonic_ns() + kCountersEveryNs;
  if (!std::exchange(segment.reported_start, true)) listener_.RunStarted(batch.run);
  ReportLevels(segment, batch);
  const bool has_warnings =
      batch.training && batch.training->changes() != segment.training.changes();
  if (batch.training) segment.training = *batch.training;
  if (batch.has_findings() || !batch.sites.empty() || at_end || has_warnings)
    touched_jobs_.insert(JobOf(batch.run));
  if (!at_end) return;
  if (!std::exchange(segment.was_ended, true)) listener_.RunEnded(batch.run, batch.state);
}

void SegmentIntake::ReportLevels(const Segment& segment, const RunBatch& batch) {
  std::optional<StepClock> clock;
  for (const Record& record : batch.records) {
    if (!record.has_level()) continue;
    if (!clock) {
      RunFacts facts;
      *facts.mutable_state() = batch.state;
      *facts.mutable_training() = batch.training ? *batch.training : segment.training;
      clock.emplace(facts);
    }
    const int64_t step = std::max<int64_t>(0, clock->Read(record.clocks()).step);
    listener_.LevelChanged(batch.run, static_cast<uint32_t>(step), record.level());
  }
}

// Only the file that was read: its name may meanwhile be that of another.
void SegmentIntake::Remove(Segment& segment) const {
  const std::string path = directory_ + "/" + segment.name;
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && info.st_ino == segment.reader.inode())
    unlink(path.c_str());
}

}  // namespace nanwatch
