// SPDX-License-Identifier: Apache-2.0
// events.jsonl: what happened, one JSON object per line, for log shippers. Each line has "time"
// (RFC 3339, UTC) and "event": run_started, run_ended, command_ended, incident, reach_grew,
// warning, level, file_unreadable, trouble, remark. A line is at most kEventBytesMax long; the
// first line of a file names the format and is unique, so that shippers that know files by their
// beginning can tell them apart.
//
// Rotated by rename: events.jsonl.1 is the newest of the old ones. A failed write (full disk) is
// counted, never fatal, and reported in the next line that succeeds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/loop/listener.h"

namespace nanwatch {

inline constexpr size_t kEventBytesMax = 8 * 1024;
inline constexpr uint64_t kEventFileBytesMax = uint64_t{16} << 20;
inline constexpr int kEventFilesKept = 4;

[[nodiscard]] std::unique_ptr<Log> MakeEventLog(std::string path, const Clock& clock,
                                                uint64_t file_bytes_max = kEventFileBytesMax);

}  // namespace nanwatch
