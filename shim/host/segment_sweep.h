// SPDX-License-Identifier: Apache-2.0
// What ended processes left in a segment directory, removed by the next that starts there. Where a
// daemon runs it reads and removes segments itself; without one they would stay in memory for good.
//
// Removed are segments whose writer is dead beyond doubt (nobody holds the lock, and no process of
// this boot and pid namespace has the header's pid and start time), and of these
//   - all that hold nothing to tell, unless they are of the caller's own job or a `nanwatch run`
//     waits for them;
//   - the oldest of the others, where there are more than the limits allow.
// Segments of other boots, hosts and pid namespaces are left alone. So is every file of another
// user. With or without a daemon: unfinished files of dead processes.
//
// Bounded in time, whatever lies there: what a sweep does not reach is left to the next, which
// begins somewhere else. Nothing throws; memory is allocated once.
#pragma once

#include <cstdint>

namespace nanwatch {

struct SweepLimits {
  uint64_t time_ns = 5'000'000;
  int files_read_max = 256;
  // Of segments with something to tell that nobody has read.
  int unread_files_max = 64;
  uint64_t unread_bytes_max = uint64_t{32} << 20;
};

struct Swept {
  int clean = 0;     // segments removed that held nothing to tell
  int unread = 0;    // segments removed, the oldest of too many, that held something
  int leftover = 0;  // other files removed
};

// `directory` is open. Not to be called where this process has a segment in it and its lock
// matters: asking for a file's lock gives up our own.
Swept Sweep(int directory, const SweepLimits& limits) noexcept;

// Whether a daemon holds the directory's lock.
[[nodiscard]] bool DaemonRuns(int directory) noexcept;

}  // namespace nanwatch
