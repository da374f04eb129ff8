// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/segment_intake.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>

#include "daemon/base/unique_fd.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/ingest/exit_file.h"
#include "daemon/ingest/segment_directory_watch.h"
#include "daemon/ingest/writer_liveness.h"
#include "daemon/loop/dead_places.h"
#include "daemon/watch/training_watch.h"
#include "proto/wire/naming.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

constexpr uint64_t kCountersEveryNs = kNsPerSecond;
constexpr uint64_t kOpenRetryNs = kNsPerSecond;
constexpr uint64_t kTroubleEveryNs = 60 * kNsPerSecond;
constexpr int64_t kLeftoverAgeSeconds = 60;
// One transaction takes at most about so many records; what is left waits for the next round.
constexpr size_t kRecordsPerCommit = 20'000;

// The pid in nw-<pid>-<nonce>.tmp; 0 when there is none.
int32_t PidInName(std::string_view name) {
  name.remove_prefix(std::min(name.size(), std::string_view(wire::kSegmentPrefix).size()));
  int32_t pid = 0;
  std::from_chars(name.data(), name.data() + name.size(), pid);
  return pid;
}

bool IsLocked(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fd.valid() && fcntl(fd.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// A copy of the run's state: if the commit fails, it is restored.
void WatchSteps(const TrainingHistory& before, RunBatch& batch) {
  if (batch.steps.empty() && batch.stats.empty()) return;
  batch.training = before;
  WatchAll(batch.steps, batch.stats, *batch.training);
}

// Whether nobody can speak for a run any more that has no segment here. It may have one in another
// segment directory, be a container's whose daemon shares this database, or be about to make it
// anew.
bool IsGone(const RunRow& row, const HostIdentity& self, uint64_t now_real_ns) {
  const Run& run = row.run;
  if (run.boot_id() != self.boot_id) return true;
  if (run.pid_namespace() == self.pid_namespace)
    return ProcessStartTicks(run.pid()) != run.process_start_ticks();
  return now_real_ns > row.updated_real_ns && now_real_ns - row.updated_real_ns >= kPresumedDeadNs;
}

std::string Key(const std::string& name, uint64_t inode) {
  return name + ":" + std::to_string(inode);
}

}  // namespace

SegmentIntake::SegmentIntake(std::string directory, const Clock& clock, Listener& listener)
    : directory_(std::move(directory)), clock_(clock), listener_(listener) {}

// ---- the directory

void SegmentIntake::Rescan(Store& store) {
  const Result<SegmentListing> listing = ListSegments(directory_);
  if (!listing.ok()) return;  // gone or out of reach: the loop sees to that
  for (const std::string& name : listing->segments) OpenNew(name, store);
  for (const std::string& name : listing->unfinished) RemoveLeftover(name);
  for (const std::string& name : listing->exits) TakeExit(name, store);
  std::erase_if(rejected_, [&](const auto& entry) {
    const bool is_segment =
        std::binary_search(listing->segments.begin(), listing->segments.end(), entry.first);
    return !is_segment &&
           !std::binary_search(listing->exits.begin(), listing->exits.end(), entry.first);
  });
}

void SegmentIntake::OpenNew(const std::string& name, Store& store) {
  const std::string path = directory_ + "/" + name;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return;
  const std::string key = Key(name, info.st_ino);
  if (segments_.contains(key)) return;
  const Rejected looks{info.st_ino, info.st_size,
                       info.st_mtim.tv_sec * int64_t{kNsPerSecond} + info.st_mtim.tv_nsec};
  if (const auto known = rejected_.find(name); known != rejected_.end() && known->second == looks)
    return;

  Result<SegmentReader> reader = SegmentReader::Open(path, SegmentReader::Access::kConsume);
  if (!reader.ok()) {
    Reject(name, looks, reader.status());
    return;
  }
  if (!MakeRoomFor(name, looks, *reader)) return;
  const Result<std::optional<SegmentCursor>> cursor = store.CursorOf(reader->run_id());
  if (!cursor.ok()) return;  // without it records would be read twice: try again at the next scan
  if (cursor->has_value()) reader->Resume(**cursor);
  const Result<RunRow> row = store.FindRun(reader->run_id());
  const bool known = row.ok();
  Result<TrainingHistory> training = store.TrainingOf(reader->run_id());
  if (!training.ok() && known) return;
  const uint64_t inode = reader->inode();
  segments_[Key(name, inode)] = std::make_unique<Segment>(
      Segment{.reader = *std::move(reader),
              .name = name,
              .reported_start = known,
              .was_ended = known && row->state.ended(),
              .training = training.ok() ? *std::move(training) : TrainingHistory()});
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
  // Too many at once, or gone meanwhile: nothing is wrong with the file.
  if (why.kind() == ErrorKind::kBusy || why.kind() == ErrorKind::kNotFound ||
      why.kind() == ErrorKind::kIo)
    return;
  rejected_[name] = file;
  listener_.FileUnreadable(wire::CleanText(name), why.message());
}

// A segment that was never finished, by a process that is dead. It may be one that we cannot see,
// in another pid namespace: hence the age.
void SegmentIntake::RemoveLeftover(const std::string& name) const {
  const std::string path = directory_ + "/" + name;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) return;
  const int64_t age_seconds =
      static_cast<int64_t>(clock_.real_ns() / kNsPerSecond) - info.st_mtim.tv_sec;
  if (age_seconds < kLeftoverAgeSeconds || IsLocked(path)) return;
  if (const int32_t pid = PidInName(name); pid > 0 && ProcessStartTicks(pid) != 0) return;
  unlink(path.c_str());
}

void SegmentIntake::TakeExit(const std::string& name, Store& store) {
  const std::string path = directory_ + "/" + name;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return;
  const Rejected looks{info.st_ino, info.st_size,
                       info.st_mtim.tv_sec * int64_t{kNsPerSecond} + info.st_mtim.tv_nsec};
  if (const auto known = rejected_.find(name); known != rejected_.end() && known->second == looks)
    return;
  const Result<JobExit> exit = ReadJobExit(path);
  if (!exit.ok()) {
    Reject(name, looks, exit.status());
    return;
  }
  if (clock_.monotonic_ns() < retry_at_ns_) return;
  if (Status recorded = store.RecordExit(*exit); !recorded.ok()) {
    (void)Failed(recorded);
    return;
  }
  unlink(path.c_str());
  touched_jobs_.insert(exit->job);
  listener_.CommandEnded(*exit);
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

// ---- reading and committing

Status SegmentIntake::Drain(Store& store) {
  if (clock_.monotonic_ns() < retry_at_ns_) return Status();
  return Commit(store, /*all=*/false);
}

Status SegmentIntake::DrainAll(Store& store) { return Commit(store, /*all=*/true); }

void SegmentIntake::Collect(Store& store, bool all, std::vector<Ready>& ready,
                            std::vector<RunBatch>& batches) {
  const uint64_t now_ns = clock_.monotonic_ns();
  size_t records = 0;
  for (auto next = segments_.begin(); next != segments_.end() && records < kRecordsPerCommit;) {
    const auto entry = next++;  // what is given up is erased
    Segment& segment = *entry->second;
    SegmentReader& reader = segment.reader;
    const bool dead = !reader.WriterLives(clock_);
    const bool counters_due = all || now_ns >= segment.counters_due_ns;
    if (!dead && !reader.HasUrgentNews() && !(counters_due && reader.HasNews())) continue;
    Result<RunBatch> batch = reader.Read(/*to_end=*/dead, clock_);
    if (!batch.ok()) {
      GiveUp(segment, dead, batch.status(), store);
      if (dead) segments_.erase(entry);
      continue;
    }
    if (!dead && !counters_due && !batch->has_findings()) continue;
    if (dead) {
      batch->state.set_ended(true);
      batch->state.set_ended_real_ns(clock_.real_ns());
    }
    WatchSteps(segment.training, *batch);
    records += batch->records.size();
    ready.push_back({&segment, dead});
    batches.push_back(*std::move(batch));
  }
}

// What was read of it before stays in the database.
void SegmentIntake::GiveUp(Segment& segment, bool dead, const Status& why, Store& store) {
  if (!std::exchange(segment.reported_broken, true))
    listener_.FileUnreadable(segment.name, why.message());
  segment.counters_due_ns = clock_.monotonic_ns() + kCountersEveryNs;
  if (!dead) return;
  if (Status ended = store.EndRun(segment.reader.run_id(), clock_.real_ns()); !ended.ok())
    (void)Failed(ended);
  Remove(segment);
}

Status SegmentIntake::Commit(Store& store, bool all) {
  std::vector<Ready> ready;
  std::vector<RunBatch> batches;
  Collect(store, all, ready, batches);
  if (batches.empty()) return Status();
  if (Status committed = store.Commit(batches, clock_.real_ns()); !committed.ok())
    return Failed(committed);
  if (after_commit_) after_commit_();
  if (reported_trouble_at_ns_ != 0) {
    listener_.Remark("the database can be written again; nothing in the segments was lost");
    reported_trouble_at_ns_ = 0;
  }
  for (size_t i = 0; i < ready.size(); ++i) Finish(ready[i], batches[i]);
  std::erase_if(segments_, [&](const auto& entry) {
    return std::any_of(ready.begin(), ready.end(),
                       [&](const Ready& r) { return r.dead && r.segment == entry.second.get(); });
  });
  return Status();
}

// After the commit: report it, release the slots, and remove the segment of an ended process.
void SegmentIntake::Finish(const Ready& ready, const RunBatch& batch) {
  Segment& segment = *ready.segment;
  if (Status done = segment.reader.Acknowledge(batch); !done.ok())
    listener_.Trouble(done.message());
  segment.counters_due_ns = clock_.monotonic_ns() + kCountersEveryNs;
  if (!std::exchange(segment.reported_start, true)) listener_.RunStarted(batch.run);
  ReportLevels(segment, batch);
  const bool has_warnings =
      batch.training && batch.training->changes() != segment.training.changes();
  if (batch.training) segment.training = *batch.training;
  if (batch.has_findings() || !batch.sites.empty() || ready.dead || has_warnings)
    touched_jobs_.insert(JobOf(batch.run));
  if (!ready.dead) return;
  if (!segment.was_ended) listener_.RunEnded(batch.run, batch.state);
  Remove(segment);
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

Status SegmentIntake::Failed(const Status& why) {
  const uint64_t now_ns = clock_.monotonic_ns();
  retry_at_ns_ = now_ns + kOpenRetryNs;
  if (reported_trouble_at_ns_ == 0 || now_ns - reported_trouble_at_ns_ >= kTroubleEveryNs) {
    reported_trouble_at_ns_ = now_ns;
    const bool full = why.kind() == ErrorKind::kFull;
    listener_.Trouble(
        (full ? "the disk with the database is full: findings stay in the segments until there is "
                "space again ("
              : "the database cannot be written: findings stay in the segments until it can (") +
        why.message() + ")");
  }
  return why;
}

}  // namespace nanwatch
