// SPDX-License-Identifier: Apache-2.0
// Batches as the store's tests need them.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/ingest/run_batch.h"

namespace nanwatch {

inline RunBatch BatchOf(uint64_t nonce, const std::string& job = "") {
  RunBatch batch;
  batch.run_id = RunId(nonce);
  batch.run.set_nonce(nonce);
  batch.run.set_job(job);
  batch.run.set_pid(static_cast<int32_t>(nonce & 0xffff));
  batch.run.set_host("host");
  batch.run.set_program("train.py");
  batch.run.set_started_real_ns(nonce);
  return batch;
}

inline void AddRecord(RunBatch& batch, uint64_t ticket) {
  Record& record = batch.records.emplace_back();
  record.set_ticket(ticket);
  record.mutable_value()->set_site(1);
}

inline void AddStep(RunBatch& batch, uint64_t index) {
  batch.steps.emplace_back().set_index(index);
}

inline void AddSnapshot(RunBatch& batch, uint64_t number) {
  batch.stats.emplace_back().set_number(number);
}

inline void AddSite(RunBatch& batch, uint32_t id, uint64_t count) {
  Site& site = batch.sites.emplace_back();
  site.set_id(id);
  site.set_count(count);
}

}  // namespace nanwatch
