// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/launch_counts.h"

#include <cstdio>

namespace nanwatch {

void CountLaunch(const NanwatchEntry& entry, ThreadState* thread, int gpu,
                 const GpuChecks::Launched& launched, const LaunchedTensors& counted) noexcept {
  ThreadCounters& counters = thread->counters;
  if (launched.down != nullptr) {
    char line[512];
    std::snprintf(line, sizeof line, "tensors on GPU %d go unchecked from here on: %s", gpu,
                  launched.down);
    entry.say(line);
  }
  if (launched.nothing_to_check) return;
  if (launched.ticket == 0) {
    counters.unchecked[static_cast<int>(launched.reason)] += counted.count;
    return;
  }
  counters.tensors_checked += counted.count;
  counters.bytes_checked += counted.bytes;
}

}  // namespace nanwatch
