// SPDX-License-Identifier: Apache-2.0
#include "tools/run_clock.h"

namespace nanwatch {

int64_t RealNs(uint64_t monotonic_ns, const Run& run) {
  const auto since_start =
      static_cast<int64_t>(monotonic_ns) - static_cast<int64_t>(run.started_monotonic_ns());
  return static_cast<int64_t>(run.started_real_ns()) + since_start;
}

uint64_t TimeOfRecord(uint64_t ticket, const RunFacts& facts) {
  for (const Record& record : facts.records()) {
    if (record.ticket() == ticket) return record.time_ns();
  }
  return 0;
}

}  // namespace nanwatch
