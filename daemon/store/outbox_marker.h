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

}  // namespace nanwatch
