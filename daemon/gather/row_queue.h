// SPDX-License-Identifier: Apache-2.0
// Between those who send rows and the database: a bounded queue, and a fixed number of threads with
// a connection each. What waits is written together, so that a busy database gets fewer and larger
// transactions. A row counts as taken only when its transaction is committed.
//
// Submit from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"
#include "daemon/fleet/held_row.h"
#include "daemon/gather/postgres.h"

namespace nanwatch {

struct RowQueueLimits {
  size_t rows_max = 50'000;             // that wait
  size_t bytes_max = size_t{64} << 20;  // of their bodies
  size_t rows_per_commit = 10'000;
  // So few wait so long for others: a transaction costs as much as some hundred rows.
  size_t rows_few = 500;
  std::chrono::milliseconds few_wait{20};
  std::chrono::milliseconds patience{30'000};  // of Submit
};

// What became of rows that were submitted.
struct Submitted {
  // kBusy: the queue is full; kIo: the database cannot be reached, did not answer in time, or
  // refused so many of them that finding these takes too long; others: it refuses whatever it gets.
  // After a failure some may have been committed: sending all of them again is right.
  Status status = {};
  // Of those that are dealt with: rows that the database refuses, and why the first of them.
  uint64_t refused = 0;
  std::string why = {};
  // Whether some were left out: their daemon belongs to another tenant.
  bool has_foreign = false;
  bool is_held_missing = false;  // the row that their sender named was not there before
};

// Since the process began.
struct RowQueueCounts {
  std::atomic<uint64_t> written{0};
  std::atomic<uint64_t> duplicates{0};
  std::atomic<uint64_t> commits{0};
  std::atomic<uint64_t> failures{0};  // transactions that were not committed, as far as is known
  std::atomic<uint64_t> refused{0};   // rows that found the queue full
  std::atomic<uint64_t> waiting{0};   // rows in the queue now
};

class RowQueue {
 public:
  using MakeWriter = std::function<std::unique_ptr<FleetWriter>()>;

  RowQueue(int threads, const MakeWriter& make_writer, RowQueueLimits limits);
  RowQueue(const RowQueue&) = delete;
  RowQueue& operator=(const RowQueue&) = delete;
  // What still waits fails.
  ~RowQueue();

  // Returns when the rows are committed, or refused one by one. `held` may come without any.
  [[nodiscard]] Submitted Submit(std::vector<FleetRow> rows, std::optional<HeldRow> held);
  // From now on what waits and what comes fails; transactions that run go on. From any thread.
  void Stop();

  [[nodiscard]] const RowQueueCounts& counts() const { return counts_; }
  // How long those wait that wait longest; 0: nothing waits.
  [[nodiscard]] std::chrono::milliseconds longest_wait() const;
  // Why the newest transaction was not committed; ok when it was, or there was none.
  [[nodiscard]] Status newest() const;

 private:
  struct Batch {
    std::vector<FleetRow> rows;
    std::vector<HeldRow> held;  // one at most
    size_t bytes = 0;
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
    std::promise<Submitted> done;
  };
  using Batches = std::vector<std::unique_ptr<Batch>>;

  void WriteUntilStopped(std::unique_ptr<FleetWriter> writer);
  [[nodiscard]] Batches TakeSome();  // empty: stop
  void WriteTogether(FleetWriter& writer, const Batches& batches);
  void WriteAlone(FleetWriter& writer, Batch& batch);
  Status WriteHalves(FleetWriter& writer, std::span<const FleetRow> rows,
                     std::span<const HeldRow> held, int& writes_left, Submitted& submitted);
  Status WriteRows(FleetWriter& writer, std::span<const FleetRow> rows,
                   std::span<const HeldRow> held, WriteCounts& wrote);

  RowQueueLimits limits_;
  RowQueueCounts counts_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Batch>> waiting_;
  size_t waiting_bytes_ = 0;
  bool stopping_ = false;
  Status newest_;
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace nanwatch
