// SPDX-License-Identifier: Apache-2.0
// Who this process is: what a segment's header says about it, from the environment and /proc.
#pragma once

#include <string_view>

#include "proto/wire/segment.h"

namespace nanwatch {

// Fills the header's identity: times, pids, namespace, boot id, job, rank, host, program, command.
// What cannot be found out stays 0, 1 for world_size, or "". Leaves nonce, versions, sections and
// level alone.
void FillIdentity(wire::SegmentHeader& header) noexcept;

// What a person would call the job: the base name of the first *.py argument, or the module after
// the first -m if that comes first, else `executable`. `command` holds arguments, each ended by a
// NUL.
[[nodiscard]] std::string_view ProgramName(std::string_view command,
                                           std::string_view executable) noexcept;

// Whether multiprocessing started a new Python for it: a DataLoader's worker of start method spawn.
[[nodiscard]] bool IsSpawnedWorker() noexcept;
// The same by its command, as of ProgramName.
[[nodiscard]] bool IsSpawnedWorker(std::string_view command) noexcept;

}  // namespace nanwatch
