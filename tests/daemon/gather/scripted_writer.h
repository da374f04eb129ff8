// SPDX-License-Identifier: Apache-2.0
// A database that a test opens, shuts and makes refuse rows.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "daemon/gather/row_queue.h"

namespace nanwatch {

struct ScriptedDatabase {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = true;            // writers wait while it is not
  Status answer;                  // what each write gives
  uint64_t refused_sequence = 0;  // a write with this row is kInvalid
  bool refuses_all = false;       // each is
  int writers_waiting = 0;
  std::vector<size_t> transactions;  // rows of each
  std::set<uint64_t> sequences;

  void Open() {
    const std::lock_guard<std::mutex> lock(mutex);
    is_open = true;
    changed.notify_all();
  }
  void AwaitWriter() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return writers_waiting > 0; });
  }
};

class ScriptedWriter final : public FleetWriter {
 public:
  explicit ScriptedWriter(ScriptedDatabase& database) : database_(database) {}

  Status Write(std::span<const FleetRow> rows, std::span<const HeldRow> held,
               WriteCounts& counts) override {
    std::unique_lock<std::mutex> lock(database_.mutex);
    ++database_.writers_waiting;
    database_.changed.notify_all();
    database_.changed.wait(lock, [this] { return database_.is_open; });
    --database_.writers_waiting;
    if (!database_.answer.ok()) return database_.answer;
    for (const FleetRow& row : rows) {
      if (row.sequence == database_.refused_sequence || database_.refuses_all)
        return Status(ErrorKind::kInvalid, "a row is refused");
    }
    for (const HeldRow& row : held) {
      if (!database_.sequences.contains(row.sequence)) counts.missing.insert(row);
    }
    database_.transactions.push_back(rows.size());
    for (const FleetRow& row : rows)
      counts.written += database_.sequences.insert(row.sequence).second ? 1 : 0;
    counts.duplicates = rows.size() - counts.written;
    return Status();
  }

 private:
  ScriptedDatabase& database_;
};

inline RowQueue::MakeWriter WritersOf(ScriptedDatabase& database) {
  return [&database] { return std::make_unique<ScriptedWriter>(database); };
}

}  // namespace nanwatch
