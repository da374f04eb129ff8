// SPDX-License-Identifier: Apache-2.0
// From the segments in NANWATCH_DIR into the store: opens new segments, reads what is new, commits
// it, and only then releases it in the segment. Reads the segments of ended processes to the end
// and removes them.
//
// It may be killed at any moment. What was committed but not released is skipped by the cursor that
// was committed with it; what was not committed is still in the segment. While the database cannot
// be written, nothing is released.
//
// What several segments have is committed together; where that fails, each is by itself, so that
// one that cannot be kept costs its own run only. One that fails again and again while others do not
// is put aside by name; its file stays. One that there is no memory for is tried again, less and
// less often.
//
// One owner, one thread: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/ingest/segment_reader.h"
#include "daemon/loop/listener.h"
#include "daemon/store/store.h"

namespace nanwatch {

class SegmentIntake {
 public:
  SegmentIntake(std::string directory, const Clock& clock, Listener& listener);

  // Lists the directory: opens new segments, reads how commands ended, removes leftovers of
  // segments that were never finished. A failure of the database is reported and returned as by
  // Drain.
  Status Rescan(Store& store);

  // Reads every segment that has news, in turns: what is left after so many records comes first
  // next time. Counters alone are written once a second, the rest at once. A failed commit is
  // reported once a minute, tried again after a second, and returned.
  Status Drain(Store& store);
  // The same for everything that is there now; before the daemon exits.
  Status DrainAll(Store& store);

  // Marks runs as ended that the database has as alive, that have no segment here and whose process
  // is gone: from an earlier boot, without a process of that number and start time, or, if that
  // cannot be seen (another pid namespace), not heard from for a day.
  void EndVanishedRuns(Store& store);

  // Forgets every open segment; the next Rescan opens them as if they were new.
  void CloseAll() {
    segments_.clear();
    put_aside_.clear();
  }

  // Jobs about which something new was committed since the last call.
  [[nodiscard]] std::set<std::string> TakeTouchedJobs() { return std::exchange(touched_jobs_, {}); }
  // Since when no commit has succeeded, monotonic; 0 while they do.
  [[nodiscard]] uint64_t failing_since_ns() const { return failing_since_ns_; }
  // Segments that are open: somebody lives, or waits to be committed.
  [[nodiscard]] size_t open_segments() const { return segments_.size(); }

  // Called between the commit and the release of a run: where a test pulls the plug.
  using CommitHook = std::function<void(const std::string& run_id)>;
  void set_after_commit(CommitHook hook) { after_commit_ = std::move(hook); }

 private:
  struct Segment {
    SegmentReader reader;
    std::string name;
    uint64_t counters_due_ns = 0;  // monotonic
    uint64_t retry_at_ns = 0;      // after a failure of its own
    int waits = 0;                 // in a row, for memory
    int failures = 0;              // in a row, while others succeeded
    int reads_when_dead = 0;       // that were committed
    bool reported_rest = false;
    bool reported_start = false;
    bool was_ended = false;  // in the database, before this daemon
    bool reported_broken = false;
    TrainingHistory training = {};  // of what was committed
  };
  struct Rejected {  // the state of a file when it could not be read
    uint64_t inode = 0;
    int64_t bytes = 0;
    int64_t changed_ns = 0;
    bool operator==(const Rejected&) const = default;
  };
  using Segments = std::map<std::string, std::unique_ptr<Segment>>;  // by file name and inode
  // What became of one segment's turn.
  struct Turn {
    Status status = {};
    bool committed = false;
    bool is_over = false;  // the segment can be closed
    bool at_end = false;   // and removed, once what was committed is on the disk
  };
  // A segment of which something was read that has to be committed.
  struct Unwritten {
    Segments::iterator entry = {};
    bool dead = false;
    bool at_end = false;
    bool too_much = false;  // more than any job writes: the rest is not read
  };
  struct Group {
    std::vector<Unwritten> unwritten = {};
    std::vector<RunBatch> batches = {};  // one for each
    size_t rows = 0;
    uint64_t bytes = 0;
  };
  struct Round {
    Status failed = {};  // the newest failure
    bool any_committed = false;
    int failures = 0;      // before anything was committed
    bool is_over = false;  // the failures are those of the database
    std::vector<std::pair<std::string, Status>> own_failures = {};
    std::vector<std::string> ended = {};
  };

  // One that holds something else than we wrote. The next commit of its run writes it anew.
  [[nodiscard]] static bool IsSpoiltRow(const Status& read) {
    return read.kind() == ErrorKind::kUnsupported;
  }

  Status OpenNew(const std::string& name, Store& store);
  Status TakeExit(const std::string& name, Store& store);
  void Reject(const std::string& name, const Rejected& file, const Status& why);
  bool MakeRoomFor(const std::string& name, const Rejected& file, const SegmentReader& reader);
  Status RemoveEnded(const std::vector<std::string>& keys, Store& store);
  bool ReadNews(Segments::iterator entry, Store& store, bool all, Group& group, Turn& turn);
  void CommitGroup(Group group, Store& store, Round& round);
  Status Commit(const std::vector<RunBatch>& batches, Store& store);
  Turn Write(const Unwritten& unwritten, RunBatch& batch, bool is_committed, Store& store);
  void EndTurn(Segments::iterator entry, const Turn& turn, Store& store, Round& round);
  Status EndRound(const Round& round, Store& store);
  void WaitAfter(const Status& why, Segment& segment) const;
  void GiveUp(Segment& segment, bool dead, const Status& why, Store& store);
  void PutAside(Segments::iterator entry, const Status& why, Store& store);
  void Finish(Segment& segment, const RunBatch& batch, bool at_end);
  void ReportLevels(const Segment& segment, const RunBatch& batch);
  void Remove(Segment& segment) const;
  Status Failed(const Status& why);
  void ReportTrouble(const Status& why);
  void ReportRecovery();
  void ReportWaiting(const Status& why);
  Status DoRound(Store& store, bool all);

  std::string directory_;
  const Clock& clock_;
  Listener& listener_;
  CommitHook after_commit_;
  Segments segments_;
  std::string next_;                          // the segment whose turn it is
  std::set<std::string> put_aside_;           // keys as of segments_
  std::map<std::string, Rejected> rejected_;  // by file name
  std::set<std::string> touched_jobs_;
  uint64_t retry_at_ns_ = 0;
  uint64_t failing_since_ns_ = 0;
  uint64_t failed_at_ns_ = 0;
  uint64_t reported_trouble_at_ns_ = 0;
  uint64_t reported_waiting_at_ns_ = 0;
};

}  // namespace nanwatch
