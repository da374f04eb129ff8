// SPDX-License-Identifier: Apache-2.0
// outbox_player STATE_DIR NONCE: stands in for a daemon that may be killed at any moment. For each
// line "COUNT" on stdin it commits so many batches of one run, each with a record whose ticket
// follows the one before, with an outbox; then it prints how many records there are. "end" ends the
// run. Started again, it goes on with what was committed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/directories.h"
#include "daemon/store/outbox.h"
#include "daemon/store/store.h"

namespace nanwatch {
namespace {

RunBatch BatchOf(uint64_t nonce) {
  RunBatch batch;
  batch.run_id = RunId(nonce);
  batch.run.set_nonce(nonce);
  batch.run.set_job("train");
  batch.run.set_host("host" + std::to_string(nonce));
  batch.run.set_rank(static_cast<int32_t>(nonce));
  batch.run.set_world_size(2);
  return batch;
}

int Fail(const Status& why) {
  std::fprintf(stderr, "%s\n", why.message().c_str());
  return 1;
}

int Play(const std::string& state_dir, uint64_t nonce) {
  const SystemClock clock;
  Result<Store> store = Store::OpenForWriting(DatabasePath(state_dir));
  if (!store.ok()) return Fail(store.status());
  const Result<std::string> note = store->KeepOutbox(clock.real_ns(), {});
  if (!note.ok()) return Fail(note.status());
  const Result<RunFacts> facts = store->Facts(RunId(nonce));
  uint64_t ticket = facts.ok() ? static_cast<uint64_t>(facts->records_size()) : 0;
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    RunBatch batch = BatchOf(nonce);
    if (std::strcmp(line, "end\n") == 0) {
      batch.state.set_ended(true);
      if (Status done = store->Commit({batch}, clock.real_ns()); !done.ok()) return Fail(done);
    }
    for (int left = std::atoi(line); left > 0; --left, ++ticket) {
      batch.records.assign(1, Record());
      batch.records[0].set_ticket(ticket);
      batch.records[0].mutable_value()->set_site(1);
      if (Status done = store->Commit({batch}, clock.real_ns()); !done.ok()) return Fail(done);
    }
    std::printf("%llu\n", static_cast<unsigned long long>(ticket));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace nanwatch

int main(int argc, char** argv) {
  return argc == 3 ? nanwatch::Play(argv[1], std::strtoull(argv[2], nullptr, 10)) : 2;
}
