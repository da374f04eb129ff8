// SPDX-License-Identifier: Apache-2.0
// What a job leaves in the segment directory that no daemon removes.
#pragma once

#include <string>
#include <vector>

#include "tools/observations.h"
#include "verdict.pb.h"

namespace nanwatch {

// Processes of the job that began to load torch, have ended and left no segment, by pid: those with
// marks in the segment directory (wire::kUnwatchedSuffix), and those that were stored before.
[[nodiscard]] std::vector<UnwatchedProcess> UnwatchedOfJob(const Places& places,
                                                           const std::string& job);

// Keeps them beside the database, for whoever asks about the job later, and removes their marks.
// Where nothing can be kept the marks stay.
void KeepUnwatched(const Places& places, const std::string& job,
                   const std::vector<UnwatchedProcess>& unwatched);

// Removes the segments of the job's ended processes and its exit file. For a caller that has read
// them, where no daemon does.
void RemoveReadSegments(Observations& observations, const std::string& job);

}  // namespace nanwatch
