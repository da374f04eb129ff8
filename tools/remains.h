// SPDX-License-Identifier: Apache-2.0
// What crashes left behind that nobody else removes: in the segment directory, and beside the
// database.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "tools/places.h"

namespace nanwatch {

struct Remain {
  std::string path;
  std::string what;  // and why nobody needs it
  uint64_t bytes = 0;
};

// Segments of ended processes that a daemon reads and then removes.
[[nodiscard]] int CountUnreadSegments(const Places& places, const Clock& clock);

// Files of this user and this place that belong to no living process: segments that no daemon reads
// (`with_segments`: also those that it could), unfinished ones, what killed tools left, databases
// that were moved aside. Ordered by path.
[[nodiscard]] std::vector<Remain> FindRemains(const Places& places, const Clock& clock,
                                              bool with_segments);

// "", or why it cannot be removed.
[[nodiscard]] std::string RemoveRemain(const Remain& remain);

}  // namespace nanwatch
