// SPDX-License-Identifier: Apache-2.0
// A round of SegmentIntake: each segment has its turn, and what they have is committed in groups.
#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>

#include "daemon/loop/segment_intake.h"
#include "daemon/watch/training_watch.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

// A round takes at most about so many records; whose turn it is then comes first in the next.
constexpr size_t kRecordsPerRound = 20'000;
// What is committed together: a transaction costs as much as some ten rows. With what one more
// segment has this bounds what is in memory; so many honest rows have a third of these bytes.
constexpr size_t kRowsPerCommit = 2'000;
constexpr uint64_t kBytesPerCommit = uint64_t{2} << 20;
constexpr size_t kRunsPerCommit = 64;
// So many segments in a row that cannot be committed are the database's failure, not theirs.
constexpr int kFailuresPerRound = 3;
// A segment is put aside after so many failures in a row, a second apart, while others succeed.
constexpr int kFailuresMax = 10;
// What a job leaves takes one read, or two. More is no job's doing.
constexpr int kReadsWhenDeadMax = 16;

// A copy of the run's state: if the commit fails, it is restored.
void WatchSteps(const TrainingHistory& before, RunBatch& batch) {
  if (batch.steps.empty() && batch.stats.empty()) return;
  batch.training = before;
  WatchAll(batch.steps, batch.stats, *batch.training);
}

// Rows, and parts of rows as large as one.
size_t RowsOf(const RunBatch& batch) {
  size_t rows = batch.records.size() + batch.steps.size() + batch.sites.size() + batch.reach.size();
  for (const StatsSnapshot& snapshot : batch.stats)
    rows += static_cast<size_t>(1 + snapshot.parameters_size() + snapshot.layers_size());
  return rows;
}

// Of what there may be many of, serialized.
uint64_t BytesOf(const RunBatch& batch) {
  uint64_t bytes = 0;
  for (const Record& record : batch.records) bytes += record.ByteSizeLong();
  for (const StepSummary& step : batch.steps) bytes += step.ByteSizeLong();
  for (const Site& site : batch.sites) bytes += site.ByteSizeLong();
  for (const StatsSnapshot& snapshot : batch.stats) bytes += snapshot.ByteSizeLong();
  return bytes;
}

Status NoMemoryFor(const std::string& name) {
  return Status(ErrorKind::kResources, "no memory for " + wire::CleanText(name));
}

}  // namespace

Status SegmentIntake::Drain(Store& store) {
  if (clock_.monotonic_ns() < retry_at_ns_) return Status();
  return DoRound(store, /*all=*/false);
}

Status SegmentIntake::DrainAll(Store& store) { return DoRound(store, /*all=*/true); }

// Each segment has its turn once, beginning with the one that the last round did not come to.
Status SegmentIntake::DoRound(Store& store, bool all) {
  Round round;
  Group group;
  size_t records = 0;
  auto entry = segments_.lower_bound(next_);
  for (size_t left = segments_.size(); left > 0 && !round.is_over; --left) {
    if (entry == segments_.end()) entry = segments_.begin();
    next_ = entry->first;
    if (records >= kRecordsPerRound) break;
    const auto current = entry++;
    Turn turn;
    if (!ReadNews(current, store, all, group, turn)) {
      EndTurn(current, turn, store, round);
      continue;
    }
    records += group.batches.back().records.size();
    group.rows += RowsOf(group.batches.back());
    group.bytes += BytesOf(group.batches.back());
    if (group.rows >= kRowsPerCommit || group.bytes >= kBytesPerCommit ||
        group.batches.size() >= kRunsPerCommit)
      CommitGroup(std::exchange(group, {}), store, round);
  }
  if (!round.is_over) CommitGroup(std::move(group), store, round);
  return EndRound(round, store);
}

Status SegmentIntake::EndRound(const Round& round, Store& store) {
  if (round.failed.kind() == ErrorKind::kCorrupt) return Failed(round.failed);
  if (Status removed = RemoveEnded(round.ended, store); !removed.ok()) return Failed(removed);
  if (round.any_committed) failing_since_ns_ = 0;
  if (round.any_committed && round.failed.ok()) ReportRecovery();
  if (round.failed.ok()) return round.failed;
  if (!round.any_committed) return Failed(round.failed);
  ReportTrouble(round.failed);
  for (const auto& [key, why] : round.own_failures) {
    const auto failing = segments_.find(key);
    const bool is_its_own = why.kind() != ErrorKind::kFull && why.kind() != ErrorKind::kBusy &&
                            why.kind() != ErrorKind::kPermission &&
                            why.kind() != ErrorKind::kResources;
    if (is_its_own && ++failing->second->failures >= kFailuresMax) PutAside(failing, why, store);
  }
  return round.failed;
}

// What a turn meant for the segment, and for the round.
void SegmentIntake::EndTurn(Segments::iterator entry, const Turn& turn, Store& store,
                            Round& round) {
  round.any_committed |= turn.committed;
  if (turn.committed) entry->second->failures = entry->second->waits = 0;
  if (IsSpoiltRow(turn.status)) {  // it will not be another one in a second
    ++entry->second->failures;
    return PutAside(entry, turn.status, store);
  }
  if (!turn.status.ok()) {
    round.failed = turn.status;
    WaitAfter(turn.status, *entry->second);
    round.own_failures.emplace_back(entry->first, turn.status);
    round.is_over = turn.status.kind() == ErrorKind::kCorrupt ||
                    (!round.any_committed && ++round.failures == kFailuresPerRound);
  }
  if (turn.at_end) round.ended.push_back(entry->first);
  if (turn.is_over) segments_.erase(entry);
}

// One sync for all. Where it fails they stay, and have their turn again.
Status SegmentIntake::RemoveEnded(const std::vector<std::string>& keys, Store& store) {
  if (keys.empty()) return Status();
  if (Status synced = store.Sync(); !synced.ok()) return synced;
  for (const std::string& key : keys) {
    const auto entry = segments_.find(key);
    Remove(*entry->second);
    segments_.erase(entry);
  }
  return Status();
}

// Adds what is new of it to the group. False: nothing is to be committed, and `turn` says what else.
bool SegmentIntake::ReadNews(Segments::iterator entry, Store& store, bool all, Group& group,
                             Turn& turn) try {
  Segment& segment = *entry->second;
  const uint64_t now_ns = clock_.monotonic_ns();
  if (!all && now_ns < segment.retry_at_ns) return false;
  SegmentReader& reader = segment.reader;
  const bool dead = !reader.WriterLives(clock_);
  const bool counters_due = all || dead || now_ns >= segment.counters_due_ns;
  if (!dead && !reader.HasUrgentNews() && !(counters_due && reader.HasNews())) return false;
  Result<RunBatch> batch = reader.Read(
      /*to_end=*/dead, clock_,
      counters_due ? SegmentReader::Counts::kAll : SegmentReader::Counts::kOfNewSites);
  if (!batch.ok()) {
    GiveUp(segment, dead, batch.status(), store);
    turn.is_over = dead;
    return false;
  }
  if (!counters_due && !batch->has_findings()) return false;
  const bool too_much = dead && batch->more && segment.reads_when_dead + 1 >= kReadsWhenDeadMax;
  const bool at_end = dead && (!batch->more || too_much);
  if (too_much) batch->state.set_records_dropped(batch->state.records_dropped() + 1);  // at least
  if (at_end) {
    batch->state.set_ended(true);
    batch->state.set_ended_real_ns(clock_.real_ns());
  }
  WatchSteps(segment.training, *batch);
  group.batches.reserve(group.batches.size() + 1);  // both are added or neither
  group.unwritten.push_back({.entry = entry, .dead = dead, .at_end = at_end, .too_much = too_much});
  group.batches.push_back(*std::move(batch));
  return true;
} catch (const std::bad_alloc&) {
  turn.status = NoMemoryFor(entry->second->name);
  return false;
}

// Together, or else one by one: one that cannot be kept costs its own run only.
void SegmentIntake::CommitGroup(Group group, Store& store, Round& round) {
  const bool are_committed = group.batches.size() > 1 && Commit(group.batches, store).ok();
  for (size_t i = 0; i < group.unwritten.size() && !round.is_over; ++i) {
    const Unwritten& unwritten = group.unwritten[i];
    EndTurn(unwritten.entry, Write(unwritten, group.batches[i], are_committed, store), store,
            round);
  }
}

Status SegmentIntake::Commit(const std::vector<RunBatch>& batches, Store& store) try {
  return store.Commit(batches, clock_.real_ns());
} catch (const std::bad_alloc&) {
  return Status(ErrorKind::kResources, "no memory for a commit");
}

SegmentIntake::Turn SegmentIntake::Write(const Unwritten& unwritten, RunBatch& batch,
                                         bool is_committed, Store& store) try {
  Segment& segment = *unwritten.entry->second;
  std::vector<RunBatch> one;
  one.push_back(std::move(batch));
  if (!is_committed) {
    if (Status committed = store.Commit(one, clock_.real_ns()); !committed.ok())
      return {.status = committed};
  }
  if (after_commit_) after_commit_(segment.reader.run_id());
  if (unwritten.dead) ++segment.reads_when_dead;
  if (unwritten.too_much && !std::exchange(segment.reported_rest, true)) {
    listener_.FileUnreadable(wire::CleanText(segment.name),
                             "holds more than any job writes: the rest of it was not read");
  }
  Finish(segment, one.front(), unwritten.at_end);
  return {.committed = true, .at_end = unwritten.at_end};
} catch (const std::bad_alloc&) {
  return {.status = NoMemoryFor(unwritten.entry->second->name)};
}

}  // namespace nanwatch
