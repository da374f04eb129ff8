// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/row_queue.h"

#include <utility>

namespace nanwatch {

RowQueue::RowQueue(int threads, const MakeWriter& make_writer, RowQueueLimits limits)
    : limits_(limits) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back(
        [this, writer = make_writer()]() mutable { WriteUntilStopped(std::move(writer)); });
  }
}

RowQueue::~RowQueue() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const std::unique_ptr<Batch>& batch : waiting_)
    batch->done.set_value(Status(ErrorKind::kIo, "the gatherer stops"));
}

Status RowQueue::Submit(std::vector<FleetRow> rows) {
  if (rows.empty()) return Status();
  auto batch = std::make_unique<Batch>();
  for (const FleetRow& row : rows) batch->bytes += row.body.size();
  const size_t count = rows.size();
  batch->rows = std::move(rows);
  std::future<Status> done = batch->done.get_future();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // One that is larger than the queue still has its turn, alone.
    if (counts_.waiting > 0 && (counts_.waiting + count > limits_.rows_max ||
                                waiting_bytes_ + batch->bytes > limits_.bytes_max)) {
      counts_.refused += count;
      return Status(ErrorKind::kBusy, "more rows wait than the database takes: send them later");
    }
    counts_.waiting += count;
    waiting_bytes_ += batch->bytes;
    waiting_.push_back(std::move(batch));
  }
  changed_.notify_one();
  if (done.wait_for(limits_.patience) != std::future_status::ready)
    return Status(ErrorKind::kIo, "the database did not answer in time");
  return done.get();
}

Status RowQueue::newest() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return newest_;
}

void RowQueue::WriteUntilStopped(std::unique_ptr<FleetWriter> writer) {
  for (Batches batches = TakeSome(); !batches.empty(); batches = TakeSome())
    WriteTogether(*writer, std::move(batches));
}

RowQueue::Batches RowQueue::TakeSome() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
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
void RowQueue::WriteTogether(FleetWriter& writer, Batches batches) {
  std::vector<FleetRow> all;
  if (batches.size() > 1) {
    for (const std::unique_ptr<Batch>& batch : batches)
      all.insert(all.end(), batch->rows.begin(), batch->rows.end());
    const Status together = WriteRows(writer, all);
    if (together.kind() != ErrorKind::kInvalid) {
      for (const std::unique_ptr<Batch>& batch : batches) batch->done.set_value(together);
      return;
    }
  }
  for (const std::unique_ptr<Batch>& batch : batches)
    batch->done.set_value(WriteRows(writer, batch->rows));
}

Status RowQueue::WriteRows(FleetWriter& writer, std::span<const FleetRow> rows) {
  WriteCounts wrote;
  Status status = writer.Write(rows, wrote);
  if (status.ok()) {
    ++counts_.commits;
    counts_.written += wrote.written;
    counts_.duplicates += wrote.duplicates;
  } else {
    ++counts_.failures;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  newest_ = status;
  return status;
}

}  // namespace nanwatch
