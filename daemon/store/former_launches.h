// SPDX-License-Identifier: Apache-2.0
// Launch ids that repeat. A step of Slurm is the job "4711.0" (proto/wire/launch.h), and Slurm
// counts its jobs from 1 again when the counter wraps or the cluster is set up anew. So when a run
// begins, runs of the same id that ended long before get the name of another job:
// "4711.0@2026-10-03". All other ids hold the key of a process, or the user has chosen them.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/store/sqlite.h"
#include "verdict.pb.h"

namespace nanwatch {

// Longer than a requeued job waits for its next attempt, shorter than Slurm needs for a round.
inline constexpr uint64_t kLaunchGapNs = uint64_t{7} * 24 * 3600 * 1'000'000'000;

// Whether the id is one that Slurm may give again.
[[nodiscard]] bool IsRepeatingJob(const std::string& job);

// Whether a run belongs to another launch than one that begins at `began_real_ns`.
// `updated_real_ns`: when it was heard of last; counts where its end is not known.
[[nodiscard]] bool IsFormerLaunch(const RunState& state, uint64_t updated_real_ns,
                                  uint64_t began_real_ns);

// Inside a transaction, before the first row of a run is written.
Status SetAsideFormerLaunch(const Database& database, const std::string& job,
                            uint64_t began_real_ns);

}  // namespace nanwatch
