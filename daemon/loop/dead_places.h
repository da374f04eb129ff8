// SPDX-License-Identifier: Apache-2.0
// What the dead left: removes what containers left in shared memory when they ended, which nobody else
// will remove, and says whether a run is one of theirs.
//
// A container's segments are its own daemon's, and the place (proto/wire/place.h) never comes back.
// From outside its processes cannot be proved dead, so they are presumed dead only when all of this
// holds: same user, same boot, no record lock on the file (a lock is seen across pid namespaces),
// and a day without a heartbeat. Nothing else is touched. A job that is alive after all creates its
// segment again at its next check; what was unread in the removed one is lost.
//
// Called by the daemon's thread now and then; keeps nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/ingest/writer_liveness.h"
#include "daemon/store/store.h"

namespace nanwatch {

inline constexpr uint64_t kPresumedDeadNs = uint64_t{24} * 3600 * kNsPerSecond;

// Removes segments of other places in `segment_dir` by the rule above; how many.
int RemoveDeadForeignSegments(const std::string& segment_dir, const Clock& clock);

// The same in the default directories of other places of this user, `prefix` + "-" + 8 hex digits;
// and the directory itself once it holds no segment, nobody holds a lock in it, and nothing in it
// was touched for a day. Gives the directories that are gone.
std::vector<std::string> RemoveDeadPlaces(const std::string& prefix, const std::string& own_dir,
                                          const Clock& clock);

// Removes a segment that was never finished (nw-PID-NONCE.tmp) by a process that is dead. That may be
// one that cannot be seen, in another pid namespace: not before a minute.
void RemoveUnfinished(const std::string& path, const Clock& clock);

// Whether nobody can speak for a run any more that has no segment here. It may have one in another
// segment directory, be a container's whose daemon shares this database, or be about to make it
// anew.
[[nodiscard]] bool IsGone(const RunRow& row, const HostIdentity& self, uint64_t now_real_ns);

}  // namespace nanwatch
