// SPDX-License-Identifier: Apache-2.0
// How far an outbox (outbox.h) had been sent at earlier times: so the daemon knows for how long it
// has kept what was acknowledged.
//
// Every function works inside the caller's transaction. One owner, one thread.
#pragma once

#include <cstdint>

#include "daemon/base/status.h"
#include "daemon/store/outbox_sent.h"
#include "daemon/store/sqlite.h"

namespace nanwatch {

class OutboxPast {
 public:
  // Rows are old once they were sent `kept_ns` ago.
  OutboxPast(const Database& database, uint64_t kept_ns)
      : database_(&database), kept_ns_(kept_ns) {}

  // Makes its table where there is none.
  Status Open();
  // Gives how far rows are old. `sent` is how far they are sent now; where that went back, they are
  // sent again, and grow old anew. Written a few hundred times in `kept_ns`.
  Result<SentUpTo> OldAt(uint64_t now_real_ns, const SentUpTo& sent);

  // After a transaction that was not committed.
  void Forget() { noted_ns_ = 0; }

 private:
  Status Note(uint64_t now_real_ns, const SentUpTo& sent);
  Status ReadOld(uint64_t now_real_ns);

  const Database* database_;
  uint64_t kept_ns_;
  uint64_t noted_ns_ = 0;
  SentUpTo sent_{};
  SentUpTo old_{};
};

}  // namespace nanwatch
