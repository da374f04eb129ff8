// SPDX-License-Identifier: Apache-2.0
// The capsules of one job, beside its verdict.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "verdict.pb.h"

namespace nanwatch {

// Fills Incident.capsule and Incident.replay.
void AddCapsules(const std::string& directory, Verdict& verdict);

// When a job has ended: completes its capsules and removes those that belong to none of its
// incidents, but for the harmless ones. What could not be done, a sentence each.
std::vector<std::string> SettleCapsules(const std::string& directory, const Verdict& verdict);

}  // namespace nanwatch
