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

// Which file a name stood for, and in which state.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t changed_ns = 0;  // numbers of files are given again
  bool operator==(const FileIdentity&) const = default;
};

struct Remain {
  std::string path;
  std::string what;  // and why nobody needs it
  uint64_t bytes = 0;
  FileIdentity identity = {};
};

// Segments of ended processes that a daemon reads and then removes.
[[nodiscard]] int CountUnreadSegments(const Places& places, const Clock& clock);

// Those of them whose processes have ended a minute ago or more, as far as can be seen: a daemon had
// the time to read them. With them their findings are lost.
[[nodiscard]] std::vector<FileIdentity> FindUnreadSegments(const Places& places,
                                                           const Clock& clock);

// Files of this user and this place that belong to no living process: files that are no segments of
// ours, segments that were never finished, what killed tools left, databases that were moved aside.
// `unread`: also those of these segments that still nobody has read. Ordered by path.
[[nodiscard]] std::vector<Remain> FindRemains(const Places& places, const Clock& clock,
                                              const std::vector<FileIdentity>& unread = {});

// "", or why it cannot be removed. Another file that has the name by now stays.
[[nodiscard]] std::string RemoveRemain(const Remain& remain);

}  // namespace nanwatch
