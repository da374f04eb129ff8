// SPDX-License-Identifier: Apache-2.0
// After the command: waits until everything its processes left behind has been read.
#pragma once

#include <string>

#include "tools/child.h"
#include "tools/observations.h"

namespace nanwatch {

enum class JobEndWait {
  kNothingSeen,   // no process of the job was ever observed
  kComplete,      // every run of it has ended and is in the database
  kStillRunning,  // processes that the command left behind live on; what they did so far is known
  kNoDaemon,      // nobody reads: what is not in the database is still in the segments
  kGaveUp,        // the daemon took too long, or the user asked not to wait
};

// Bounded: 10 s, or 3 s when the job was asked to stop, because whoever asked may not wait long.
// Says so on stderr after 2 s. A SIGINT or SIGTERM now cuts it short.
[[nodiscard]] JobEndWait AwaitJobEnd(SignalGate& gate, Observations& observations,
                                     const std::string& job, bool asked_to_stop);

}  // namespace nanwatch
