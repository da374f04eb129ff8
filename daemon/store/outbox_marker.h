// SPDX-License-Identifier: Apache-2.0
// Whether the daemon writes to the outbox (outbox.h) in its database, for those who send it: the
// rows of one that was switched off stay, and nothing follows them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/status.h"
#include "daemon/store/sqlite.h"

namespace nanwatch {

struct OutboxMarker {
  bool is_kept = true;
  uint64_t since_real_ns = 0;
  std::string damage = {};  // what is wrong with its tables; "" where it was not asked for any more
};

// nullopt where the database has no outbox, or one of a version that had no marker.
[[nodiscard]] Result<std::optional<OutboxMarker>> ReadOutboxMarker(const Database& database);
// In a transaction of the caller's.
[[nodiscard]] Status WriteOutboxMarker(const Database& database, const OutboxMarker& marker);

// Whether a failure says that the outbox's tables are at fault. Any other may pass, and is one of
// the whole database.
[[nodiscard]] inline bool IsOutboxDamage(const Status& status) {
  return status.kind() == ErrorKind::kCorrupt || status.kind() == ErrorKind::kInvalid;
}
// For an outbox that is damaged when it is opened: the next that is opened drops its tables. A
// marker that is damaged itself is replaced. In a transaction of its own.
[[nodiscard]] Status MarkOutboxDamaged(const Database& database, uint64_t now_real_ns,
                                       const std::string& damage);

}  // namespace nanwatch
