// SPDX-License-Identifier: Apache-2.0
// An outbox in a directory of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/directories.h"
#include "daemon/store/outbox.h"
#include "daemon/store/store.h"
#include "tests/daemon/store/batch_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {

inline constexpr uint64_t kSecondNs = 1'000'000'000;
inline constexpr uint64_t kNowNs = uint64_t{1'764'203'000} * kSecondNs;

class OutboxTest : public testing::Test {
 protected:
  static Store Open(const std::string& state_dir, uint64_t now_ns = kNowNs,
                    OutboxOptions options = {}) {
    Result<Store> store = Store::OpenForWriting(DatabasePath(state_dir));
    EXPECT_TRUE(store.ok()) << store.status().message();
    const Result<std::string> note = store->KeepOutbox(now_ns, std::move(options));
    EXPECT_TRUE(note.ok()) << note.status().message();
    note_ = *note;
    return *std::move(store);
  }
  static std::vector<FleetRow> Pending(const std::string& state_dir, const SentUpTo& sent = {}) {
    const Result<OutboxReader> reader = OutboxReader::Open(state_dir);
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    const Result<std::vector<FleetRow>> rows = reader->Pending(sent, 1'000'000, size_t{1} << 30);
    EXPECT_TRUE(rows.ok()) << rows.status().message();
    for (const FleetRow& row : *rows) EXPECT_EQ(WhatIsWrong(row), "");
    return *rows;
  }
  std::vector<FleetRow> Pending() const { return Pending(dir_.path()); }
  static std::vector<FleetKind> KindsOf(const std::vector<FleetRow>& rows) {
    std::vector<FleetKind> kinds;
    kinds.reserve(rows.size());
    for (const FleetRow& row : rows) kinds.push_back(row.kind);
    return kinds;
  }
  static std::map<FleetKind, int> CountKinds(const std::vector<FleetRow>& rows) {
    std::map<FleetKind, int> counts;
    for (const FleetRow& row : rows) ++counts[row.kind];
    return counts;
  }
  static Incident IncidentOf(const RunBatch& batch, const std::string& op) {
    Incident incident;
    incident.mutable_origin()->set_run(batch.run_id);
    incident.mutable_origin()->set_op(op);
    return incident;
  }

  TemporaryDirectory dir_;
  static inline std::string note_;
};

}  // namespace nanwatch
