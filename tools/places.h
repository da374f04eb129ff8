// SPDX-License-Identifier: Apache-2.0
// Where this user's segments and database are, and what is wrong with either; found once per call
// of the tool. Creates nothing.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/directories.h"
#include "daemon/base/status.h"

namespace nanwatch {

struct Places {
  std::string segment_dir;  // "" when the variable that names it makes no sense
  Status segment_status;    // whether it may be trusted; kNotFound: no job has run yet
  std::string state_dir;
  Status state_status;           // whether a path could be found for it
  std::string database;          // "" when state_status is not ok
  std::string note;              // a sentence for the user, or ""
  std::string wanted_state_dir;  // where it would be if nothing stood in the way; "" as state_dir

  // The database is next to the segments, because the state directory could not be used.
  [[nodiscard]] bool is_beside() const {
    return !segment_dir.empty() && state_dir == StateBesideSegments(segment_dir);
  }
};

// A running daemon decides which database is used, whatever NANWATCH_STATE_DIR says here: what it
// has read is nowhere else. Without a daemon, a database next to the segments is used if there is
// one, unless NANWATCH_STATE_DIR names another that exists.
[[nodiscard]] Places FindPlaces(const Environment& environment);

// A segment directory of this user in shared memory that belongs to another place: a container, or,
// seen from a container, the host.
struct OtherPlace {
  std::string path;
  int segments = 0;
};
[[nodiscard]] std::vector<OtherPlace> FindOtherPlaces(const std::string& segment_dir);
// The one of them that holds a segment of this job, or `segment_dir` itself when another place
// shares it; "" none does.
[[nodiscard]] std::string JobInAnotherPlace(const std::string& segment_dir, const std::string& job);

// The message when there is no run: how to begin, which directory was searched, and what was in the
// way.
[[nodiscard]] std::string NoRunIsKnown(const Places& places);

// Why this database cannot be read and what to do, a sentence.
[[nodiscard]] Status UnreadableDatabase(const Status& why, const std::string& database);

// The database that process `pid` has open, "" if that is unknown.
[[nodiscard]] std::string DatabaseOfProcess(int pid);

}  // namespace nanwatch
