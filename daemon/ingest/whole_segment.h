// SPDX-License-Identifier: Apache-2.0
// All that a segment holds, for whoever looks at it once.
#pragma once

#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "verdict.pb.h"

namespace nanwatch {

// What a segment holds now.
struct SegmentFacts {
  RunFacts facts;  // `ended` in the state is set when the writer is dead
  bool is_whole =
      true;  // false: it holds more; of an ended one a record at least counts as dropped
};

// Consumes nothing; tools use it when no daemon is running. Reads as often as there is more, but
// for a writer that goes on for ever.
[[nodiscard]] Result<SegmentFacts> ReadWhole(const std::string& path, const Clock& clock);

}  // namespace nanwatch
