// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/row_queue.h"

#include <algorithm>
#include <utility>

namespace nanwatch {
namespace {

// Transactions for one batch in which rows are refused: enough for some rows among thousands.
constexpr int kWritesPerBatchMax = 128;

bool HasForeign(const std::vector<FleetRow>& rows, const std::set<DaemonOfTenant>& foreign) {
  return !foreign.empty() && std::any_of(rows.begin(), rows.end(), [&](const FleetRow& row) {
    return foreign.contains({row.daemon, row.tenant});
  });
}

bool AreMissing(std::span<const HeldRow> held, const std::set<HeldRow>& missing) {
  return std::any_of(held.begin(), held.end(),
                     [&](const HeldRow& row) { return missing.contains(row); });
}

}  // namespace

RowQueue::RowQueue(int threads, const MakeWriter& make_writer, RowQueueLimits limits)
    : limits_(limits) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back(
        [this, writer = make_writer()]() mutable { WriteUntilStopped(std::move(writer)); });
  }
}

RowQueue::~RowQueue() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

void RowQueue::Stop() {
  std::deque<std::unique_ptr<Batch>> left;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    left.swap(waiting_);
    waiting_bytes_ = 0;
    counts_.waiting = 0;
  }
  changed_.notify_all();
  for (const std::unique_ptr<Batch>& batch : left)
    batch->done.set_value({.status = Status(ErrorKind::kIo, "the gatherer stops")});
}

Submitted RowQueue::Submit(std::vector<FleetRow> rows, std::optional<HeldRow> held) {
  if (rows.empty() && !held) return {};
  auto batch = std::make_unique<Batch>();
  if (held) batch->held.push_back(*std::move(held));
  for (const FleetRow& row : rows) batch->bytes += row.body.size();
  const size_t count = rows.size();
  batch->rows = std::move(rows);
  std::future<Submitted> done = batch->done.get_future();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return {.status = Status(ErrorKind::kIo, "the gatherer stops")};
    // One that is larger than the queue still has its turn, alone.
    if (counts_.waiting > 0 && (counts_.waiting + count > limits_.rows_max ||
                                waiting_bytes_ + batch->bytes > limits_.bytes_max)) {
      counts_.refused += count;
      return {.status = Status(ErrorKind::kBusy,
                               "more rows wait than the database takes: send them later")};
    }
    counts_.waiting += count;
    waiting_bytes_ += batch->bytes;
    waiting_.push_back(std::move(batch));
  }
  changed_.notify_one();
  if (done.wait_for(limits_.patience) != std::future_status::ready)
    return {.status = Status(ErrorKind::kIo, "the database did not answer in time")};
  return done.get();
}

std::chrono::milliseconds RowQueue::longest_wait() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waiting_.empty()) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               waiting_.front()->since);
}

Status RowQueue::newest() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return newest_;
}

void RowQueue::WriteUntilStopped(std::unique_ptr<FleetWriter> writer) {
  for (Batches batches = TakeSome(); !batches.empty(); batches = TakeSome())
    WriteTogether(*writer, batches);
}

RowQueue::Batches RowQueue::TakeSome() {
  std::unique_lock<std::mutex> lock(mutex_);
  // Several threads may wait for the same few rows: one takes them, the others begin anew.
  do {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    changed_.wait_for(lock, limits_.few_wait,
                      [this] { return stopping_ || counts_.waiting >= limits_.rows_few; });
  } while (!stopping_ && waiting_.empty());
  Batches taken;
  if (stopping_) return taken;
  size_t rows = 0;
  while (!waiting_.empty() &&
         (taken.empty() || rows + waiting_.front()->rows.size() <= limits_.rows_per_commit)) {
    rows += waiting_.front()->rows.size();
    waiting_bytes_ -= waiting_.front()->bytes;
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  counts_.waiting -= rows;
  return taken;
}

// Rows that the database refuses must not take those of others with them.
void RowQueue::WriteTogether(FleetWriter& writer, const Batches& batches) {
  std::vector<FleetRow> all;
  std::vector<HeldRow> held;
  if (batches.size() > 1) {
    for (const std::unique_ptr<Batch>& batch : batches) {
      all.insert(all.end(), batch->rows.begin(), batch->rows.end());
      held.insert(held.end(), batch->held.begin(), batch->held.end());
    }
    WriteCounts wrote;
    const Status together = WriteRows(writer, all, held, wrote);
    if (together.kind() != ErrorKind::kInvalid) {
      for (const std::unique_ptr<Batch>& batch : batches)
        batch->done.set_value({.status = together,
                               .has_foreign = HasForeign(batch->rows, wrote.foreign),
                               .is_held_missing = AreMissing(batch->held, wrote.missing)});
      return;
    }
  }
  for (const std::unique_ptr<Batch>& batch : batches) WriteAlone(writer, *batch);
}

void RowQueue::WriteAlone(FleetWriter& writer, Batch& batch) {
  Submitted submitted;
  int writes_left = kWritesPerBatchMax;
  submitted.status = WriteHalves(writer, batch.rows, batch.held, writes_left, submitted);
  batch.done.set_value(std::move(submitted));
}

// By halves, until the rows that are refused stand alone.
Status RowQueue::WriteHalves(FleetWriter& writer, std::span<const FleetRow> rows,
                             std::span<const HeldRow> held, int& writes_left,
                             Submitted& submitted) {
  if (writes_left-- == 0)
    return Status(ErrorKind::kIo, "many of these rows are refused: send fewer at once");
  WriteCounts wrote;
  Status status = WriteRows(writer, rows, held, wrote);
  submitted.has_foreign |= !wrote.foreign.empty();
  // The rows may bring it themselves.
  submitted.is_held_missing |= AreMissing(held, wrote.missing);
  if (status.kind() != ErrorKind::kInvalid) return status;
  if (rows.size() == 1) {
    if (submitted.refused++ == 0) submitted.why = status.message();
    return Status();
  }
  const size_t half = rows.size() / 2;
  if (Status first = WriteHalves(writer, rows.first(half), held, writes_left, submitted);
      !first.ok())
    return first;
  return WriteHalves(writer, rows.subspan(half), held, writes_left, submitted);
}

Status RowQueue::WriteRows(FleetWriter& writer, std::span<const FleetRow> rows,
                           std::span<const HeldRow> held, WriteCounts& wrote) {
  Status status = writer.Write(rows, held, wrote);
  if (status.ok()) {
    ++counts_.commits;
    counts_.written += wrote.written;
    counts_.duplicates += wrote.duplicates;
  } else {
    ++counts_.failures;
  }
  // Of a row that is refused the row is at fault.
  if (status.kind() == ErrorKind::kInvalid) return status;
  const std::lock_guard<std::mutex> lock(mutex_);
  newest_ = status;
  return status;
}

}  // namespace nanwatch
