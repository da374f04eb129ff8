// SPDX-License-Identifier: Apache-2.0
// What was concluded of a job, its incidents and warnings, in the order in which they were given.
// Each conclusion replaces the one before.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/store/outbox.h"
#include "daemon/store/sqlite.h"
#include "verdict.pb.h"

namespace nanwatch {

// Each a transaction of its own. What is new goes into `outbox` too, which may be null.
Status ReplaceIncidents(const Database& database, Outbox* outbox, const std::string& job,
                        const std::vector<Incident>& incidents);
Status ReplaceWarnings(const Database& database, Outbox* outbox, const std::string& job,
                       const std::vector<Warning>& warnings);

[[nodiscard]] Result<std::vector<Incident>> ReadIncidents(const Database& database,
                                                          const std::string& job);
[[nodiscard]] Result<std::vector<Warning>> ReadWarnings(const Database& database,
                                                        const std::string& job);

}  // namespace nanwatch
